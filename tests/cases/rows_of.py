"""Jobs for a pool of ranks: tensors of every small size, cut over two axes, into a checkpoint and back."""

from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from meshwright.trainer.checkpoint import SharedRows, load_latest, save, training_state
from meshwright.trainer.parallel.rows import own_rows

SIZES = range(1, 10)


def whole(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(100 * seed + rows))


def mine(rows: int, seed: int, over: tuple[int, int], at: tuple[int, ...]) -> torch.Tensor:
    """This rank's rows of a rank's part of a tensor: by `over[0]` tensor ranks, then by `over[1]` that share."""
    return own_rows(own_rows(whole(rows, seed), over[0], at[0]), over[1], at[1]).clone()


def state_of(over: tuple[int, int], seed: int) -> tuple[dict[str, torch.Tensor], dict[str, nn.Parameter]]:
    mesh = init_device_mesh("cpu", over, mesh_dim_names=("tp", "shard"))
    at = tuple(mesh.get_coordinate() or (0, 0))
    parameters = {f"p{rows}": nn.Parameter(mine(rows, seed, over, at)) for rows in SIZES}
    optimizer = torch.optim.SGD(list(parameters.values()))
    shared = None
    if over[1] > 1:
        rows_here = {f"p{rows}": len(own_rows(whole(rows, seed), over[0], at[0])) for rows in SIZES}
        shared = SharedRows(mesh if over[0] > 1 else mesh["shard"], rows_here)
    return training_state(parameters, optimizer, lambda name: 0, mesh["tp"], shared=shared), parameters


def write(over: tuple[int, int], checkpoints: Path) -> None:
    save(1, state_of(over, seed=1)[0], checkpoints)


def read(over: tuple[int, int], checkpoints: Path) -> list[str]:
    """Names of this rank's tensors that did not come back as they were."""
    state, parameters = state_of(over, seed=2)
    load_latest(state, checkpoints)
    _, expected = state_of(over, seed=1)
    return [name for name in parameters if not torch.equal(parameters[name], expected[name])]
