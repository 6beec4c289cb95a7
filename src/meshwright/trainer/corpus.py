"""What there is to train on: a folder, file or pattern of the user's, or the sources of the Python standard library."""

import hashlib
import json
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from meshwright.basics.errors import Complaint, InputError, bad_input

Kind = Literal["text", "JSON lines", "Parquet", "Arrow", "tokens"]
_KINDS: Mapping[str, Kind] = {
    ".jsonl": "JSON lines", ".ndjson": "JSON lines", ".parquet": "Parquet", ".arrow": "Arrow", ".idx": "tokens",
}  # fmt: skip
_LEGAL = "UTF-8 text, .jsonl, .parquet, a folder saved by datasets, or Megatron's .bin and .idx"
_PATTERN = re.compile(r"[*?[]")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16 and UTF-32
# Not the library's own prose: tests, installed packages, and generated tables of code points.
_STDLIB_SKIPS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "ensurepip", "encodings", "lib-dynload"}
)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files of one kind below `root`, in a fixed order; `label` names them to people. `field` holds a document of JSON
    lines and tables; of tokens, `files` are the .idx."""

    label: str
    root: Path
    files: tuple[Path, ...]
    kind: Kind = "text"
    field: str = "text"
    left_out: tuple[Path, ...] = ()  # files that are not text


def open_corpus(path: str | None, field: str = "text") -> Corpus:
    """The corpus at `path`: a folder (searched below; hidden files are left out), a file, a pattern with `*`, or the
    common name of a .bin and its .idx. None: the standard library of the Python that runs.

    Files ending in .jsonl hold a document a line, .parquet and .arrow a document a row, under `field`; a folder with
    state.json is one that `datasets` saved; any other file is one document of UTF-8 text, unless it is binary, which
    is left out of a folder. Raises InputError when there is nothing to read, or files of several kinds.
    """
    if path is None:
        root = Path(sysconfig.get_path("stdlib"))
        files = tuple(file for file in _walk(root, _STDLIB_SKIPS) if file.suffix == ".py")
        return Corpus("the sources of the Python standard library", root, files)
    root = Path(path).expanduser()
    if not root.exists() and root.with_name(root.name + ".idx").exists():
        root = root.with_name(root.name + ".idx")
    if root.is_file():
        return _sorted_out(path, root.parent, [root], field)
    if root.is_dir():
        saved = _saved_tables(root)
        return Corpus(str(root), root, saved, "Arrow", field) if saved else _sorted_out(path, root, _walk(root), field)
    fixed = next(parent for parent in root.absolute().parents if not _PATTERN.search(str(parent)))
    pattern = root.absolute().relative_to(fixed)
    found = sorted(file for file in fixed.glob(str(pattern)) if file.is_file()) if _PATTERN.search(path) else []
    if not found:
        raise bad_input("no such file or folder", field="data.path", value=repr(path))
    return _sorted_out(path, fixed, found, field)


def fingerprint(corpus: Corpus) -> str:
    """Changes whenever a file of the corpus is added, removed, resized or written to."""
    digest = hashlib.sha256(f"{corpus.kind}\0{corpus.field}\n".encode())
    for file in corpus.files:
        for part in (file, file.with_suffix(".bin")) if corpus.kind == "tokens" else (file,):
            stat = part.stat()
            name = part.relative_to(corpus.root).as_posix()
            digest.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _sorted_out(path: str, root: Path, found: Iterable[Path], field: str) -> Corpus:
    """The corpus of these files. Raises InputError when they are none, of several kinds, or cannot be read."""
    by_kind: dict[Kind, list[Path]] = {}
    binary: list[Path] = []
    complaints: list[Complaint] = []
    for file in found:
        kind = _KINDS.get(file.suffix)
        beginning = _beginning(file)
        if kind is None and file.suffix == ".bin":
            if file.with_suffix(".idx").exists():
                kind, file = "tokens", file.with_suffix(".idx")
            elif len(complaints) < 20:
                complaints.append(_complaint(file, f"has no {file.stem}.idx beside it", "Megatron's .bin and .idx"))
                continue
        elif kind == "tokens" and not file.with_suffix(".bin").exists():
            complaints.append(_complaint(file, f"has no {file.stem}.bin beside it", "Megatron's .bin and .idx"))
            continue
        elif kind is None and beginning.startswith(_WIDE_MARKS):
            complaints.append(_complaint(file, "is UTF-16 text", f"convert it: iconv -f utf-16 -t utf-8 {file.name}"))
            continue
        if kind is None and b"\0" in beginning:
            binary.append(file)
        elif file not in by_kind.setdefault(kind or "text", []):  # a .bin and its .idx are one
            by_kind[kind or "text"].append(file)
    if complaints:
        raise InputError(tuple(complaints))
    if len(by_kind) > 1:
        counted = ", ".join(f"{len(files)} of {kind}" for kind, files in by_kind.items())
        raise bad_input(f"mixes kinds of files: {counted}", field="data.path", value=repr(path),
                        legal=f"files of one kind; a pattern chooses them: {root / '*.jsonl'}")  # fmt: skip
    if not by_kind:
        skipped = f", {len(binary)} binary" if binary else ""
        raise bad_input(f"holds no text files{skipped}", field="data.path", value=repr(path), legal=_LEGAL)
    kind, files = next(iter(by_kind.items()))
    if all(file.suffix == ".json" for file in files):  # would be trained on as text, braces and all
        raise bad_input("holds .json files alone", field="data.path", value=repr(path),
                        legal="JSON lines, an object with a document each, end in .jsonl")  # fmt: skip
    if not any(file.stat().st_size for file in files):
        raise bad_input(f"is empty: {len(files)} of 0 bytes", field="data.path", value=repr(path))
    return Corpus(path, root, tuple(files), kind, field, tuple(binary))


def _saved_tables(folder: Path) -> tuple[Path, ...]:
    """The Arrow files of a folder that `save_to_disk` of Hugging Face's `datasets` wrote; empty when it is none.

    Of several splits "train", or the only one. Raises InputError when it cannot tell, or a file is missing.
    """
    splits = folder / "dataset_dict.json"
    if splits.exists():
        names = _json_object(splits).get("splits")
        names = [str(name) for name in names] if isinstance(names, list) else []
        chosen = "train" if "train" in names else names[0] if len(names) == 1 else None
        if chosen is None:
            raise bad_input(f"has the splits {', '.join(names) or 'none'}", field="data.path", value=repr(str(folder)),
                            legal="the folder of one split")  # fmt: skip
        folder = folder / chosen
    state = folder / "state.json"
    if not state.exists():
        return ()
    listed = _json_object(state).get("_data_files")
    entries = listed if isinstance(listed, list) else []
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in entries]
    if not names or not all(isinstance(name, str) for name in names):
        raise bad_input("does not list its data files", field="_data_files", file=str(state))
    files = tuple(folder / str(name) for name in names)
    missing = [_complaint(file, f"is missing, but listed in {state.name}") for file in files if not file.exists()]
    if missing:
        raise InputError(tuple(missing))
    return files


def _json_object(file: Path) -> dict[str, object]:
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise bad_input("is not JSON that can be read", file=str(file)) from error
    return data if isinstance(data, dict) else {}


def _complaint(file: Path, rule: str, legal: str = "") -> Complaint:
    return Complaint("", "", rule, legal, str(file))


def _walk(root: Path, skipped: frozenset[str] = frozenset()) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in skipped and not n.startswith((".", "__pycache__", "config-")))
        found = (Path(folder, file) for file in sorted(files) if not file.startswith("."))
        yield from (file for file in found if not _never_ends(file))


def _never_ends(file: Path) -> bool:
    """Is it a pipe, a socket or a device, which cannot be read twice, or at all?"""
    return file.exists() and not file.is_file()


def _beginning(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(4096)
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", field="data.path", file=str(file)) from error
