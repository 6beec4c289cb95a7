"""Checkpoint folders on disk: their names, the manifest with a checksum of each file, and which are complete.

torch's distributed checkpoint loads overwritten bytes without a word, so every file is checked before it is read.
`checkpoints/step00000010/` holds the engine's files and `manifest.json`; it gets this name, in one step, only when all
of it is on disk.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.basics.errors import Complaint
from meshwright.files.strict_json import dump, load_as

MANIFEST = "manifest.json"
_NAME = re.compile(r"step(\d{8,})")
_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class FileSum:
    """Size in bytes and SHA-256 of one file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a complete checkpoint holds: the state after `step` steps."""

    step: int
    files: Mapping[str, FileSum]


def folder_of(checkpoints: Path, step: int) -> Path:
    """Where the complete checkpoint of a step lies."""
    return checkpoints / f"step{step:08}"


def latest(checkpoints: Path) -> Path | None:
    """The complete checkpoint with the most steps, or None. Unfinished ones are never seen."""
    found = {
        int(match.group(1)): path
        for path in (checkpoints.iterdir() if checkpoints.is_dir() else ())
        if (match := _NAME.fullmatch(path.name)) and (path / MANIFEST).is_file()
    }
    return found[max(found)] if found else None


def sums(folder: Path, names: Iterable[str]) -> dict[str, FileSum]:
    """Checksums of the named files of a folder."""
    return {name: _sum(folder / name) for name in names}


def complete(work: Path, final: Path, manifest: Manifest) -> None:
    """Write the manifest into the finished work folder, put everything on disk, and give it its final name."""
    for name in manifest.files:
        _sync(work / name)
    dump(manifest, work / MANIFEST)
    _sync(work / MANIFEST)
    _sync(work)
    work.rename(final)
    _sync(final.parent)


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of a complete checkpoint. Raises InputError naming the file."""
    return load_as(checkpoint / MANIFEST, Manifest)


def damage(checkpoint: Path, manifest: Manifest, names: Iterable[str]) -> tuple[Complaint, ...]:
    """What is wrong with the named files of a checkpoint: missing, another size, other bytes."""
    found = []
    for name in names:
        file, wanted = checkpoint / name, manifest.files[name]
        if not file.is_file():
            found.append(Complaint("", "", "is missing from the checkpoint", "", str(file)))
        elif file.stat().st_size != wanted.size:
            size = file.stat().st_size
            found.append(Complaint("", "", f"is damaged: {size} bytes instead of {wanted.size}", "", str(file)))
        elif _sum(file) != wanted:
            found.append(Complaint("", "", "is damaged: its checksum differs from the manifest", "", str(file)))
    return tuple(found)


def _sum(file: Path) -> FileSum:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return FileSum(size, digest.hexdigest())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
