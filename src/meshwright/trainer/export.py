"""The trained model as a folder that transformers loads: config.json and safetensors, whatever the layout was."""

import json
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import RunFailed
from meshwright.model.architecture import Architecture
from meshwright.model.units import units_of
from meshwright.trainer.engine import Engine
from meshwright.trainer.export_config import config_content, config_folder, copy_tokenizer
from meshwright.trainer.parallel.units import unit_of
from meshwright.trainer.weights import Shape, stored_shapes, whole_shapes
from meshwright.trainer.weights_files import INDEX, SINGLE
from meshwright.trainer.weights_names import pieces
from meshwright.trainer.wholes import Arrays, wholes

FILE_BYTES = 4 * 2**30  # of one file of weights, about
_COPIES = 3  # names listed in a complaint


def export(engine: Engine, folder: Path, file_bytes: int = FILE_BYTES, tokenizer: Path | None = None) -> None:
    """Write the model to `folder`, whole or not at all; what was there is replaced. Rank 0 writes, a unit at a time,
    fp32. `tokenizer`: a file to take along, if it is there and the model's own folder has none. Collective.

    Raises RunFailed unless the parameters of all ranks make up the one-process model, each exactly once.
    """
    arch = engine.plan.setup.proposal.arch
    writer = Writer(arch, folder, file_bytes) if engine.mesh.rank == 0 else None
    for unit in units_of(arch):
        held = {name: p for name, p in engine.parts.owned.items() if unit_of(name, arch) == unit.name}
        try:
            found = wholes(engine, held)
        except ValueError as error:
            raise RunFailed(f"the model cannot be written: {error}") from error
        if writer is not None and found is not None:
            writer.add(found)
    if writer is not None:
        writer.finish(tokenizer)


class Writer:
    """Collects whole parameters into files of about `file_bytes`."""

    def __init__(self, arch: Architecture, folder: Path, file_bytes: int) -> None:
        self.arch, self.folder, self.file_bytes = arch, folder, file_bytes
        self.work = folder.with_name(f".{folder.name}.partial")
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.expected = whole_shapes(arch)
        self.shapes = stored_shapes(arch, self.expected)
        self.names: list[str] = []
        self.files: list[dict[str, Shape]] = []
        self.pending: dict[str, NDArray[np.float32]] = {}

    def add(self, arrays: Arrays) -> None:
        """Whole parameters of one unit, by their names inside the trainer."""
        for name, array in arrays.items():
            self.names.append(name)
            if array.shape != self.expected.get(name):
                raise RunFailed(f"the model cannot be written: {name} came out as {array.shape}, "
                                f"not {self.expected.get(name, 'part of the model')}")  # fmt: skip
            self._place(name, array.astype(np.float32, copy=False))
        if sum(tensor.nbytes for tensor in self.pending.values()) >= self.file_bytes:
            self._flush()

    def finish(self, tokenizer: Path | None = None) -> None:
        """Check that nothing is missing or double, write the rest, and let the folder appear under its name."""
        missing = sorted(self.expected.keys() - set(self.names))
        double = sorted({name for name in self.names if self.names.count(name) > 1})
        if missing or double:
            said = [f"{len(names)} {what}: {', '.join(names[:_COPIES])}" for what, names in
                    (("are missing", missing), ("came twice", double)) if names]  # fmt: skip
            raise RunFailed(f"of the model's {len(self.expected)} parameters {'; '.join(said)}")
        self._flush()
        self._name_files()
        (self.work / "config.json").write_text(json.dumps(config_content(self.arch), indent=2) + "\n")
        source = config_folder(self.arch)
        if source is not None:
            copy_tokenizer(source, self.work)
        if tokenizer is not None and tokenizer.exists() and not (self.work / tokenizer.name).exists():
            shutil.copyfile(tokenizer, self.work / tokenizer.name)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.work.rename(self.folder)

    def _place(self, name: str, array: NDArray[np.float32]) -> None:
        for piece in pieces(name, self.arch):
            part = array if piece.expert is None else array[piece.expert, slice(*piece.rows)]
            if piece.name not in self.pending:
                self.pending[piece.name] = np.empty(self.shapes[piece.name], np.float32)
            stored = self.pending[piece.name]
            rows = slice(piece.first, piece.first + len(part))
            if piece.transposed:
                stored[:, rows] = part.T
            else:
                stored[rows] = part

    def _flush(self) -> None:
        from safetensors.numpy import save_file

        if self.pending:
            save_file(self.pending, self.work / f"{len(self.files)}.safetensors", {"format": "pt"})
            self.files.append({name: tensor.shape for name, tensor in self.pending.items()})
            self.pending = {}

    def _name_files(self) -> None:
        """One file has a plain name; several are numbered and have an index, as transformers writes them."""
        count = len(self.files)
        if count == 1:
            (self.work / "0.safetensors").rename(self.work / SINGLE)
            return
        places: dict[str, str] = {}
        for number, held in enumerate(self.files):
            name = f"model-{number + 1:05}-of-{count:05}.safetensors"
            (self.work / f"{number}.safetensors").rename(self.work / name)
            places |= dict.fromkeys(held, name)
        total = sum(4 * int(np.prod(shape)) for held in self.files for shape in held.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (self.work / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
