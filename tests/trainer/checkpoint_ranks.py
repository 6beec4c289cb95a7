"""One of two tensor ranks that hold shares of a small model, for the checkpoint tests.

`checkpoint_ranks.py RANK STORE CHECKPOINTS save|load|damaged`; `whole` builds the same model in one process.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from meshwright.basics.errors import InputError
from meshwright.trainer.checkpoint import load_latest, save, training_state

SHAPES = {"embed_tokens.weight": (7, 6), "q_proj.weight": (4, 6), "o_proj.weight": (6, 4), "norm.weight": (6,)}
SPLIT = {"embed_tokens.weight": 0, "q_proj.weight": 0, "o_proj.weight": 1}
STEPS = 3

Parameters = dict[str, nn.Parameter]


def split_dim(name: str) -> int | None:
    return SPLIT.get(name)


def cut(name: str, tensor: torch.Tensor, rank: int | None) -> torch.Tensor:
    """This rank's share as torch.chunk cuts it (4 and 3 rows of 7); the whole when rank is None."""
    dim = split_dim(name)
    return tensor if rank is None or dim is None else tensor.chunk(2, dim)[rank].contiguous()


def build(seed: int, rank: int | None = None) -> tuple[Parameters, torch.optim.Optimizer]:
    generator = torch.Generator().manual_seed(seed)
    parameters = {
        name: nn.Parameter(cut(name, torch.randn(shape, generator=generator), rank)) for name, shape in SHAPES.items()
    }
    return parameters, torch.optim.AdamW(parameters.values(), lr=0.01)


def step(parameters: Parameters, optimizer: torch.optim.Optimizer, number: int, rank: int | None = None) -> None:
    """A step whose gradients are known for the whole model, so that shares and the whole train alike."""
    generator = torch.Generator().manual_seed(1000 + number)
    for name, shape in SHAPES.items():
        parameters[name].grad = cut(name, torch.randn(shape, generator=generator), rank)
    optimizer.step()


def trained(steps: int, seed: int = 1) -> Parameters:
    parameters, optimizer = build(seed)
    for number in range(steps):
        step(parameters, optimizer, number)
    return parameters


def main(rank: int, store: str, checkpoints: Path, verb: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    state_of: Callable[..., dict[str, torch.Tensor]] = lambda p, o: training_state(p, o, split_dim, mesh)  # noqa: E731
    if verb == "save":
        parameters, optimizer = build(1, rank)
        for number in range(STEPS):
            step(parameters, optimizer, number, rank)
        save(STEPS, state_of(parameters, optimizer), checkpoints)
    elif verb == "load":
        parameters, optimizer = build(2, rank)
        assert load_latest(state_of(parameters, optimizer), checkpoints) == STEPS
        for number in range(STEPS, STEPS + 2):
            step(parameters, optimizer, number, rank)
        for name, expected in trained(STEPS + 2).items():
            torch.testing.assert_close(parameters[name], cut(name, expected, rank), rtol=0, atol=0)
    else:
        parameters, optimizer = build(2, rank)
        try:
            load_latest(state_of(parameters, optimizer), checkpoints)
        except InputError as error:
            print(error)  # on both ranks, although only one has read the damaged file
        else:
            raise AssertionError("loaded damaged bytes")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4])
