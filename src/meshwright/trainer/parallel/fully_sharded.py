"""ZeRO-3 by PyTorch's FSDP2 (Zhao et al. 2023), one unit at a time: each rank holds its rows of every parameter.

A unit's parameters are gathered for its forward and again for its backward, after which its gradients are
reduce-scattered: in every micro-batch, or with "step" once, of gradients kept whole until then. Halves of a backward
need the weights between them: there they are gathered once a step, and gradients leave at its end, as PyTorch's own
pipelines do it. FSDP2 keeps the modules that own the parameters, so names stay global.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from meshwright.trainer.clock import Clock
from meshwright.trainer.parallel.groups import Group
from meshwright.trainer.torch_versions import reduce_now, time_collectives


class Unit(nn.Module):
    """The modules that own a unit's parameters; called around the unit's computation, so that FSDP sees it begin and
    end whatever the model calls in it."""

    def __init__(self, owners: Sequence[nn.Module]) -> None:
        super().__init__()
        self.owners = nn.ModuleList(owners)

    def forward(self, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        return compute(x)


class FullySharded:
    """Each rank holds and updates its rows of every parameter.

    `units` are the units' parameters, by (unit, global name, module, attribute); a parameter that two units share
    (a tied matrix) makes them one for FSDP. `once` gathers once a step; `late` reduces once a step.
    """

    def __init__(
        self, units: Mapping[str, Mapping[str, tuple[nn.Module, str]]], mesh: DeviceMesh, shard: Group, once: bool,
        late: bool, clock: Clock,
    ) -> None:  # fmt: skip
        self.modules: dict[str, Unit] = {}
        self._once, self._late = once, late or once
        places = {name: place for held in units.values() for name, place in held.items()}
        for names in joined_units(units):
            owners = dict.fromkeys(module for unit in names for module, _ in units[unit].values())
            module = Unit(list(owners))
            fully_shard(module, mesh=mesh, reshard_after_forward=not once)
            # The loss is divided by what the whole step trains on: sums, not means.
            module.set_gradient_divide_factor(1.0)  # type: ignore[operator]
            module.set_force_sum_reduction_for_comms(True)  # type: ignore[operator]
            time_collectives(module, clock, shard.ranks)
            self.modules.update(dict.fromkeys(names, module))
        self._sharded: dict[str, DTensor] = {}
        for name, (owner, attribute) in places.items():
            parameter = getattr(owner, attribute)
            if not any(parameter is other for other in self._sharded.values()):
                self._sharded[name] = parameter
        # The optimizer, norms and checkpoints work on the local rows, without DTensor's dispatch.
        self.parameters = self.owned = {name: nn.Parameter(p.to_local().detach()) for name, p in self._sharded.items()}

    def start(self) -> None:
        """A new step: forget the last one's gradients."""
        for name, parameter in self._sharded.items():
            parameter.grad = self.owned[name].grad = None
        for module in self._distinct():
            module.set_requires_gradient_sync(not self._late)  # type: ignore[operator]
            module.set_reshard_after_backward(not self._once)  # type: ignore[operator]

    def after_backward(self) -> None:
        """FSDP has reduced what was due."""

    @torch.no_grad()
    def exchange(self) -> None:
        """Hand over the gradients of the rows, reduced."""
        if self._late:
            for module in self._distinct():
                reduce_now(module)
        for name, parameter in self._sharded.items():
            if parameter.grad is not None:
                grad = parameter.grad
                assert isinstance(grad, DTensor)
                self.owned[name].grad = grad.to_local()

    def gather(self) -> None:
        """Units gather when they run."""

    def _distinct(self) -> list[Unit]:
        return list(dict.fromkeys(self.modules.values()))


def joined_units(units: Mapping[str, Mapping[str, tuple[nn.Module, str]]]) -> list[tuple[str, ...]]:
    """Units, those that share a parameter together, in forward order; units without parameters are left out."""
    groups: list[tuple[list[str], set[int]]] = []
    for unit, held in units.items():
        parameters = {id(getattr(module, attribute)) for module, attribute in held.values()}
        if not parameters:
            continue
        shared = next((group for group in groups if group[1] & parameters), None)
        if shared is None:
            groups.append(([unit], parameters))
        else:
            shared[0].append(unit)
            shared[1].update(parameters)
    return [tuple(names) for names, _ in groups]
