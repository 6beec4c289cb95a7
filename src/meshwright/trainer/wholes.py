"""Whole parameters out of the shards of all ranks, on rank 0, and how far they are from a reference's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from meshwright.trainer.courses import Difference
from meshwright.trainer.engine import Engine
from meshwright.trainer.models.names import split_dim
from meshwright.trainer.step import TIED

Arrays = dict[str, NDArray[Any]]


def wholes(engine: Engine, pieces: Mapping[str, Tensor]) -> Arrays | None:
    """Whole tensors on rank 0, None elsewhere, of what each rank holds of them (`parts.owned` or its gradients).

    Raises ValueError when two stages have a parameter of the same name, unless it is a tied one. Collective.
    """
    mesh, tied = engine.mesh, engine.plan.setup.proposal.arch.tied
    mine = {
        name: piece.detach().cpu().numpy()
        for name, piece in pieces.items()
        if mesh.copies.rank == 0 and (split_dim(name) is not None or mesh.tp.rank == 0)
        and not (tied and name == TIED[1])
    }  # fmt: skip
    told: list[Any] | None = [None] * mesh.world.size if mesh.rank == 0 else None
    sent = ((mesh.pp.rank, mesh.tp.rank, mesh.shard.rank), mine)
    if mesh.world.size > 1:
        dist.gather_object(sent, told, dst=0)
    elif told is not None:
        told[0] = sent
    if told is None:
        return None
    found: dict[str, dict[tuple[int, int], NDArray[Any]]] = {}
    homes: dict[str, int] = {}
    for (pp, tp, shard), held in told:
        for name, piece in held.items():
            if homes.setdefault(name, pp) != pp:
                raise ValueError(f"{name} is on pipeline ranks {homes[name]} and {pp}")
            found.setdefault(name, {})[tp, shard] = piece
    return {name: _joined(parts, split_dim(name)) for name, parts in found.items()}


def _joined(parts: Mapping[tuple[int, int], NDArray[Any]], dim: int | None) -> NDArray[Any]:
    """Rows of shards within the columns or rows of tensor ranks."""
    ranks = sorted({tp for tp, _ in parts})
    shares = [np.concatenate([parts[tp, shard] for other, shard in sorted(parts) if other == tp]) for tp in ranks]
    return np.concatenate(shares, axis=dim or 0)


def keep(arrays: Arrays, folder: Path) -> None:
    """Leave arrays for others to compare with."""
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def unequal(arrays: Arrays, folder: Path) -> tuple[str, ...]:
    """Names whose arrays are not those that `keep` left, to the bit; those that only one side has as well."""
    kept = {file.stem: file for file in folder.glob("*.npy")}
    both = kept.keys() & arrays.keys()
    wrong = {name for name in both if arrays[name].tobytes() != np.load(kept[name]).tobytes()}
    return tuple(sorted(wrong | (kept.keys() ^ arrays.keys())))


def small(folder: Path, share: float) -> frozenset[str]:
    """Names of which what `keep` left has a norm below `share` of the norm of all."""
    norms = {file.stem: float(np.linalg.norm(np.load(file).astype(np.float64))) for file in folder.glob("*.npy")}
    whole = float(np.linalg.norm(list(norms.values())))
    return frozenset(name for name, norm in norms.items() if norm < share * whole)


def differences(
    arrays: Arrays, folder: Path, floor: float = 0.0, without: frozenset[str] = frozenset()
) -> tuple[Difference, ...]:
    """For each name, but for those in `without`, the norm of the difference over that of what `keep` left, or over
    `floor` times the norm of all if that is more; largest first. A missing array differs infinitely."""
    kept = {file.stem: np.load(file).astype(np.float64) for file in folder.glob("*.npy")}
    norms = {name: float(np.linalg.norm(array)) for name, array in kept.items()}
    all_ = float(np.linalg.norm(list(norms.values())))
    kept = {name: array for name, array in kept.items() if name not in without}
    found = []
    for name, array in kept.items():
        if name not in arrays or arrays[name].shape != array.shape:
            found.append(Difference(name, float("inf")))
            continue
        distance = float(np.linalg.norm(arrays[name] - array))
        found.append(Difference(name, distance / max(norms[name], floor * all_, 1e-30)))
    return tuple(sorted(found, key=lambda difference: -difference.relative))


def gradients_of(engine: Engine) -> dict[str, Tensor]:
    """The last step's gradients as they were used."""
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in engine.parts.owned.items()}
