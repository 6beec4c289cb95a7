"""Weights out of a Hugging Face folder: each rank reads the rows and columns of what it holds, nothing else."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from meshwright.basics.errors import Complaint, InputError
from meshwright.model.architecture import Architecture
from meshwright.model.units import units_of
from meshwright.trainer.clock import Clock
from meshwright.trainer.export_config import is_a_part
from meshwright.trainer.models.build import build
from meshwright.trainer.models.initial import fill
from meshwright.trainer.models.names import bounds, split_dim
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.parallel.groups import alone
from meshwright.trainer.parallel.tensor_parallel import TensorGroup
from meshwright.trainer.parallel.units import named_parameters
from meshwright.trainer.spans import SpanRecorder
from meshwright.trainer.weights_files import StoredTensor, stored_tensors
from meshwright.trainer.weights_names import Piece, aliases, is_weight, pieces

Shape = tuple[int, ...]


class Weights:
    """The weights of a folder, checked against a model as a whole, read as they are asked for.

    Raises InputError listing every tensor that the model needs and the folder does not have in that shape, and every
    one that the folder has and the model does not.
    """

    def __init__(self, folder: Path, arch: Architecture) -> None:
        self.arch, self._stored = arch, stored_tensors(folder)
        shapes = stored_shapes(arch)
        self._place = {name: self._found(name) for name in shapes}
        wrong = [*_missing(self._place, shapes, folder), *self._left_over(folder)]
        if wrong:
            raise InputError(tuple(wrong))

    def fill(self, model: StageModel, device: torch.device) -> None:
        """Give a meta model storage on `device` and its weights, in fp32."""

        def piece(name: str, shape: Shape) -> Tensor:
            return self.read(name, shape, model.tensor)

        fill(model, device, piece)

    def read(self, name: str, shape: Shape, tensor: TensorGroup) -> Tensor:
        """One tensor rank's share, fp32, of the parameter of that name (inside the trainer) and whole shape."""
        dim, parts = split_dim(name), pieces(name, self.arch)
        if parts[0].expert is None:
            ranges = [(0, size) for size in shape]
            if dim is not None:
                ranges[dim] = bounds(shape[dim], tensor.size, tensor.rank)
            return self._slice(parts[0], ranges)
        whole = torch.empty(shape)
        for part in parts:
            first, last = part.rows
            whole[part.expert, first:last] = self._slice(part, [(0, last - first), (0, shape[-1])])
        return whole

    def _found(self, name: str) -> StoredTensor | None:
        return next((self._stored[n] for n in (name, *aliases(name, self.arch)) if n in self._stored), None)

    def _left_over(self, folder: Path) -> list[Complaint]:
        """What the folder has beyond the model; a copy of tied weights is fine, and other parts of a larger model."""
        if is_a_part(self.arch):
            return []
        known = {alias for name in self._place for alias in (name, *aliases(name, self.arch))}
        if self.arch.tied:
            known |= {"lm_head.weight", "embed_out.weight"}
        return [
            Complaint(name, "", "is in the folder, but the model has no such weight", "", str(folder))
            for name in self._stored
            if name not in known and is_weight(name)
        ]

    def _slice(self, piece: Piece, ranges: list[tuple[int, int]]) -> Tensor:
        """Rows and columns of a stored matrix (or elements of a vector), as (output, input)."""
        from safetensors import safe_open

        (first, last), *columns = ranges
        cut = [slice(piece.first + first, piece.first + last), *(slice(*pair) for pair in columns)]
        if piece.transposed:
            cut.reverse()
        place = self._place[piece.name]
        assert place is not None
        name = next(n for n in (piece.name, *aliases(piece.name, self.arch)) if n in self._stored)
        with safe_open(str(place.file), framework="pt") as file:
            found: Tensor = file.get_slice(name)[tuple(cut)]
        return (found.T if piece.transposed else found).float()


def whole_shapes(arch: Architecture) -> dict[str, Shape]:
    """The shapes of all parameters of the one-process model by their names inside the trainer; tied ones once."""
    group = TensorGroup(alone(), Clock(SpanRecorder(0)))
    model = build(arch, group, [unit.name for unit in units_of(arch)])
    return {name: tuple(parameter.shape) for name, parameter in named_parameters([model]).items()}


def stored_shapes(arch: Architecture, wholes: Mapping[str, Shape] | None = None) -> dict[str, Shape]:
    """The names and shapes of all tensors of a folder with the model's weights; `wholes` as of `whole_shapes`."""
    found: dict[str, Shape] = {}
    for name, shape in (whole_shapes(arch) if wholes is None else wholes).items():
        for piece in pieces(name, arch):
            rows, columns = piece.first + shape[0], shape[1:]
            if piece.expert is not None:
                rows, columns = piece.rows[1] - piece.rows[0], shape[2:]
            before = found.get(piece.name, (0,))  # of the parts of a fused matrix the last one ends it
            rows = max(rows, before[-1] if piece.transposed else before[0])
            found[piece.name] = (*columns, rows) if piece.transposed else (rows, *columns)
    return found


def _missing(place: Mapping[str, StoredTensor | None], shapes: Mapping[str, Shape], folder: Path) -> list[Complaint]:
    wrong = []
    for name, shape in shapes.items():
        entry = place[name]
        if entry is None:
            wrong.append(Complaint(name, "", "is not in the folder, and the model needs it", "", str(folder)))
        elif entry.shape != shape:
            rule = f"has shape {entry.shape}, the model needs {shape}"
            wrong.append(Complaint(name, "", rule, "", str(entry.file)))
    return wrong
