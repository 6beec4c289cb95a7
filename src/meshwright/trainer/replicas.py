"""Are parameters that must be equal on several ranks equal, to the bit?"""

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.trainer.engine import Engine
from meshwright.trainer.models.names import split_dim
from meshwright.trainer.parallel.groups import Group, all_reduce
from meshwright.trainer.step import TIED, own_square_sum


def drifted(engine: Engine) -> tuple[str, ...]:
    """Names of this rank's parameters that differ from their copies on other ranks; empty on every rank when none do.

    Compared: all parameters among the ranks that hold the same of them, unsharded ones among tensor ranks, both copies
    of a tied matrix. Collective.
    """
    parameters, mesh = engine.parts.parameters, engine.mesh
    names = sorted(parameters)
    copied = [name for name in names if split_dim(name) is None]
    tied = [name for name in names if name in TIED] if engine.plan.setup.proposal.arch.tied else []
    wrong: set[str] = set()
    whole = engine.plan.layout.zero < 3 or mesh.shard.size == 1
    replicas = (mesh.copies, names), (mesh.shard, names if whole else [])
    for group, compared in (*replicas, (mesh.tp, copied), (mesh.ends, tied[:1])):
        if group.size > 1 and compared:
            sums = torch.stack([_checksum(parameters[name].detach()) for name in compared])
            wrong.update(name for name, same in zip(compared, _agree(sums, group, engine), strict=True) if not same)
    return tuple(sorted(wrong))


def weight_norm(engine: Engine) -> float:
    """The norm of all weights, each counted once: equal for equal weights in any layout. Collective."""
    weights = {name: p.detach() for name, p in engine.parts.owned.items()}
    total = own_square_sum(weights, engine.mesh, engine.plan.setup.proposal.arch.tied).reshape(1)
    return float(all_reduce(total, engine.mesh.world, engine.clock, "weight norm").sqrt().item())


def _checksum(x: Tensor) -> Tensor:
    """A sum of the bits that any single changed element changes."""
    return x.contiguous().view(torch.int32).long().sum()


def _agree(sums: Tensor, group: Group, engine: Engine) -> list[bool]:
    high = all_reduce(sums.clone(), group, engine.clock, "compare copies", dist.ReduceOp.MAX)
    low = all_reduce(sums.clone(), group, engine.clock, "compare copies", dist.ReduceOp.MIN)
    return [bool(same) for same in (high == low).tolist()]
