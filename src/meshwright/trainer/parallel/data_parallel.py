"""Data parallelism: replicas that hold everything, or share the states out (ZeRO-1, 2, 3; HSDP), behind one face."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import nn

from meshwright.layout.degrees import Layout
from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.trainer.clock import Clock
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.parallel.fully_sharded import FullySharded
from meshwright.trainer.parallel.mesh import Mesh
from meshwright.trainer.parallel.replicated import Replicated
from meshwright.trainer.parallel.sharded import Sharded
from meshwright.trainer.parallel.units import named_parameters, unit_parameters

Models = Sequence[tuple[int, StageModel]]


class Replicas(Protocol):
    """One rank's part of the states, and their exchange. All gradients are sums over replicas."""

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The weights that this rank holds between steps, by global name."""
        ...

    @property
    def owned(self) -> Mapping[str, nn.Parameter]:
        """What this rank's optimizer updates: whole parameters, or this rank's rows of them; perhaps no rows."""
        ...

    def start(self) -> None:
        """A new step: forget gradients."""
        ...

    def after_backward(self) -> None:
        """A backward of a micro-batch, or a half of one, is over."""
        ...

    def exchange(self) -> None:
        """Complete the gradients of `owned`."""
        ...

    def gather(self) -> None:
        """After the update: bring the weights up to date."""
        ...


def share_states(models: Models, layout: Layout, mesh: Mesh, clock: Clock) -> Replicas:
    """Divide the states of this rank's models over its replicas as the layout says."""
    halved = layout.pp > 1 and layout.schedule in SPLIT_BACKWARD
    if mesh.shard.size > 1 and layout.zero == 3:
        units = {unit: held for _, model in models for unit, held in unit_parameters(model).items()}
        assert mesh.states is not None
        return FullySharded(units, mesh.states, mesh.shard, halved, layout.exchange == "step", clock)
    sections = _sections(models)
    # Weight gradients of a halved backward arrive unannounced, so that no bucket knows when it is full.
    overlap = layout.overlap and not halved
    if mesh.shard.size > 1:
        exchange = layout.exchange if layout.zero == 2 else "step"
        return Sharded(sections, layout.bucket_mib, overlap, exchange, mesh.shard, mesh.copies, clock)
    return Replicated(sections, layout.bucket_mib, overlap, mesh.copies, clock)


def _sections(models: Models) -> list[dict[str, nn.Parameter]]:
    """The parameters of each stage, and those that two stages share."""
    held = [named_parameters([model]) for _, model in models]
    found = named_parameters([model for _, model in models])
    places = {name: [i for i, own in enumerate(held) if any(p is q for q in own.values())] for name, p in found.items()}
    sections = [{name: found[name] for name in found if places[name] == [index]} for index in range(len(models))]
    sections.append({name: found[name] for name in found if len(places[name]) > 1})
    return [section for section in sections if section]
