"""Documents in tables: Parquet files, and the Arrow files that Hugging Face's `datasets` saves (by pyarrow)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.basics.names import nearest
from meshwright.trainer.corpus import Kind

_ROWS = 1000  # read at a time


@dataclass(frozen=True, slots=True)
class _Table:
    """An open file: its schema, how many parts it has, and the record batches of one after the other."""

    schema: Any
    count: int
    batches: Callable[[int, int, str], Iterator[tuple[int, Any]]]


def parts_of(file: Path, kind: Kind, field: str) -> int:
    """Row groups of a Parquet file, or record batches of an Arrow file. Raises InputError for a damaged file, for a
    column `field` that is missing or holds no text, and without pyarrow."""
    with _opened(file, kind) as table:
        names = [str(name) for name in table.schema.names]
        if field not in names:
            near = nearest(field, names)
            raise bad_input(f'has no column "{field}"', field="data.field", file=str(file),
                            legal=f"did you mean {near!r}?" if near else f"columns: {', '.join(names)}")  # fmt: skip
        found = str(table.schema.field(field).type)
        if found not in ("string", "large_string", "string_view"):
            raise bad_input(f"holds {found}, not text", field=f'column "{field}"', file=str(file))
        return table.count


def documents_of(file: Path, kind: Kind, field: str, first: int, last: int) -> Iterator[str]:
    """The rows' text in parts [first, last). Raises InputError naming part and row (from 0) of a row without text."""
    with _opened(file, kind) as table:
        before, row = -1, 0
        for part, batch in table.batches(first, last, field):
            row, before = row if part == before else 0, part
            for text in batch.column(batch.schema.names.index(field)).to_pylist():
                if text is None:
                    raise bad_input(f'has no text under "{field}"', file=f"{file}: part {part}, row {row}")
                yield str(text)
                row += 1


@contextmanager
def _opened(file: Path, kind: Kind) -> Iterator[_Table]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise bad_input(f"reading {kind} files needs the package 'pyarrow', which is not installed", file=str(file),
                        legal="pip install 'meshwright[tables]'") from error  # fmt: skip
    try:
        if kind == "Parquet":
            yield _parquet(pyarrow.parquet.ParquetFile(file))
        else:
            yield _arrow(pyarrow, file)
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise bad_input(f"cannot be read as {kind} ({reason})", file=str(file)) from error


def _parquet(table: Any) -> _Table:
    def batches(first: int, last: int, field: str) -> Iterator[tuple[int, Any]]:
        for group in range(first, last):
            for batch in table.iter_batches(_ROWS, row_groups=[group], columns=[field]):
                yield group, batch

    return _Table(table.schema_arrow, table.num_row_groups, batches)


def _arrow(pyarrow: Any, file: Path) -> _Table:
    """`datasets` writes the streaming format, whose batches are found one after the other; others the file format."""
    try:
        whole = pyarrow.ipc.open_file(pyarrow.memory_map(str(file)))
    except pyarrow.ArrowInvalid:
        stream = pyarrow.ipc.open_stream(pyarrow.memory_map(str(file)))
        found = list(stream)  # views of the mapped file: no text is read
        return _Table(stream.schema, len(found), lambda first, last, _: iter(list(enumerate(found))[first:last]))
    return _Table(
        whole.schema, whole.num_record_batches,
        lambda first, last, _: ((index, whole.get_batch(index)) for index in range(first, last)),
    )  # fmt: skip
