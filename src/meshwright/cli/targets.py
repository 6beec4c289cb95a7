"""Where a verb writes."""

from collections.abc import Sequence
from pathlib import Path

from meshwright.basics.errors import bad_input


def target(path: Path, inputs: Sequence[Path | str], option: str = "--output") -> Path:
    """Where to write. Raises InputError when that would overwrite an input, or when the folder does not exist."""
    if any(path.resolve() == Path(given).resolve() for given in inputs):
        raise bad_input("would overwrite the file it was read from", field=option, value=path)
    if not path.resolve().parent.is_dir():
        raise bad_input("its folder does not exist", field=option, value=path)
    if path.is_dir():
        raise bad_input("is a folder", field=option, value=path, legal="name a file")
    return path
