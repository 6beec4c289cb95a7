"""Checkpoints by torch's distributed checkpoint, under global names: saved by one layout, loaded by any other."""

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.checkpoint.state_dict_saver import save as save_state
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from meshwright.basics.errors import Complaint, InputError, RunFailed, bad_input
from meshwright.trainer.checkpoint_files import (
    Manifest,
    complete,
    damage,
    folder_of,
    latest,
    read_manifest,
    sums,
)  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True)
class SharedRows:
    """Rows that replicas share out (ZeRO), as `torch.chunk` cuts them. `mesh`: [ranks that share], or [tensor ranks,
    ranks that share]; `rows`: how many rows this tensor rank's share of each parameter has in all."""

    mesh: DeviceMesh
    rows: Mapping[str, int]


def training_state(
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    split_dim: Callable[[str], int | None] = lambda name: None,
    tensor_mesh: DeviceMesh | None = None,
    same_as: Mapping[str, str] | None = None,
    shared: SharedRows | None = None,
) -> dict[str, Tensor]:
    """This rank's weights and optimizer state under global names; the tensors share their storage with the originals.

    `parameters` are local shards by global name; `split_dim` says along which axis a name is split over the ranks of
    `tensor_mesh` (None: every rank holds a copy), which lets another layout cut the whole differently. `same_as` maps
    the second name of a tied matrix to the first, so that the two copies are saved as one and both loaded from it.
    `shared`: what is given are rows only, perhaps none, of a tensor rank's share. Collective over the tensor ranks.
    Optimizer state that does not exist before the first step is made, without changing a weight.
    """
    names = {name: (same_as or {}).get(name, name) for name in parameters}
    _make_optimizer_state(optimizer)
    split = tensor_mesh is not None and tensor_mesh.size() > 1
    rows = shared.rows if shared else {}
    locals_ = {name: [rows.get(name, len(p)), *p.shape[1:]] for name, p in parameters.items()}
    sizes = _whole_sizes(locals_, split_dim, tensor_mesh) if split else {}

    def whole(name: str, tensor: Tensor) -> Tensor:
        dim = split_dim(name) if split else None
        mesh = shared.mesh if shared else tensor_mesh
        if mesh is None or tensor.ndim == 0 or (dim is None and shared is None):
            return tensor
        shape = list(locals_[name])
        if dim is not None:
            shape[dim] = sizes[name]
        over_tensor: list[Placement] = [Replicate() if dim is None else Shard(dim)] if split else []
        placements = [*over_tensor, *([Shard(0)] if shared else [])]
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(tensor, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)

    state = {}
    for name, parameter in parameters.items():
        if parameter.numel() == 0:  # other ranks have all the rows
            continue
        state[f"model.{names[name]}"] = whole(name, parameter.detach())
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                state[f"optimizer.{names[name]}.{key}"] = whole(name, value)
    return state


def save(step: int, state: Mapping[str, Tensor], checkpoints: Path) -> Path:
    """Save the state after `step` steps; collective. The folder appears under its name whole or not at all.

    A complete checkpoint of that step is kept as it is. Raises OSError on every rank when one cannot write, RunFailed
    when what was written does not make up each tensor exactly once.
    """
    final = folder_of(checkpoints, step)
    work = final.with_name(f".{final.name}.partial")

    def start() -> bool:
        if final.exists():
            return False
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        return True

    if not _on_first(start):
        return final
    save_state(dict(state), checkpoint_id=work, no_dist=not dist.is_initialized())
    _on_first(lambda: check_volumes(work))
    mine = [file.name for file in sorted(work.iterdir())][_rank() :: _world()]
    parts = _gather(lambda: sums(work, mine))
    files = {name: value for part in parts for name, value in part.items()}
    _on_first(lambda: complete(work, final, Manifest(step, files)))
    return final


def check_volumes(checkpoint: Path) -> None:
    """Raise RunFailed unless the pieces written of each tensor are disjoint and have as many elements as the whole."""
    for name, entry in FileSystemReader(checkpoint).read_metadata().state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            continue
        boxes = [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks]
        written = sum(math.prod(sizes) for _, sizes in boxes)
        if written != math.prod(entry.size) or len({offsets for offsets, sizes in boxes if 0 not in sizes}) < sum(
            0 not in sizes for _, sizes in boxes
        ):
            whole = tuple(entry.size)
            raise RunFailed(f"the checkpoint is not complete: {written} elements of {name} {whole} were written")


def load(state: Mapping[str, Tensor], checkpoint: Path) -> int:
    """Fill the tensors of `state` (from `training_state`) in place; collective. Returns the steps done.

    Every file is verified first. Raises InputError, on every rank alike, for damaged or missing files, and for tensors
    that the checkpoint does not have in that shape.
    """
    manifest = _on_first(lambda: read_manifest(checkpoint))
    mine = sorted(manifest.files)[_rank() :: _world()]
    _raise(_gather(lambda: damage(checkpoint, manifest, mine)))
    _raise(_gather(lambda: _mismatches(state, checkpoint)))
    try:
        load_state(dict(state), checkpoint_id=checkpoint, no_dist=not dist.is_initialized())
    except CheckpointException as error:
        raise bad_input(f"cannot be loaded ({error})", file=str(checkpoint)) from error
    return manifest.step


def load_latest(state: Mapping[str, Tensor], checkpoints: Path) -> int | None:
    """As `load`, from the newest complete checkpoint; None, with nothing changed, when there is none."""
    newest = _on_first(lambda: latest(checkpoints))
    return None if newest is None else load(state, newest)


def _whole_sizes(
    shapes: Mapping[str, list[int]], split_dim: Callable[[str], int | None], mesh: DeviceMesh | None
) -> dict[str, int]:
    """Length of the split axis of each split parameter over all tensor ranks, whose shares need not be equal."""
    assert mesh is not None
    mine = {name: shape[dim] for name, shape in shapes.items() if (dim := split_dim(name)) is not None}
    shares: list[dict[str, int]] = [{}] * mesh.size()
    dist.all_gather_object(shares, mine, group=mesh.get_group())
    return {name: sum(share[name] for share in shares) for name in mine}


def _make_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimizer that has no state yet allocate it, by a step of rate 0 on gradients of 0."""
    if any(optimizer.state.values()):
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters]
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], Tensor) else 0.0
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
        if "step" in optimizer.state[parameter]:
            optimizer.state[parameter]["step"].zero_()


def _mismatches(state: Mapping[str, Tensor], checkpoint: Path) -> tuple[Complaint, ...]:
    saved = FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    found = []
    for name, tensor in state.items():
        entry = saved.get(name)
        if not isinstance(entry, TensorStorageMetadata):
            found.append(Complaint(name, "", "is not in the checkpoint", "", str(checkpoint)))
        elif tuple(entry.size) != tuple(tensor.shape):
            shapes = f"has shape {tuple(entry.size)}, the plan's model needs {tuple(tensor.shape)}"
            found.append(Complaint(name, "", shapes, "", str(checkpoint)))
    return tuple(found)


def _raise(complaints: list[tuple[Complaint, ...]]) -> None:
    found = dict.fromkeys(complaint for part in complaints for complaint in part)
    if found:
        raise InputError(tuple(found))


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _gather(produce: Callable[[], T]) -> list[T]:
    """What `produce` returns on every rank; an exception on any rank is raised on all."""
    outcome: tuple[T | None, Exception | None]
    try:
        outcome = (produce(), None)
    except Exception as error:
        outcome = (None, error)
    outcomes: list[tuple[T | None, Exception | None]] = [outcome] * _world()
    if dist.is_initialized():
        dist.all_gather_object(outcomes, outcome)
    for _, failure in outcomes:
        if failure is not None:
            raise failure
    return [value for value, _ in outcomes]  # type: ignore[misc]


def _on_first(produce: Callable[[], T]) -> T:
    """What `produce` returns on rank 0, on every rank."""
    return _gather(lambda: produce() if _rank() == 0 else None)[0]  # type: ignore[return-value]
