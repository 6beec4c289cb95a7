"""Activation recompute (Chen et al. 2016): a unit keeps only its input and runs again in the backward."""

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from meshwright.layout.degrees import Layout
from meshwright.trainer.clock import UnitMeter
from meshwright.trainer.models.decoder import UnitRunner


def recomputed_units(layout: Layout, units: Sequence[str]) -> frozenset[str]:
    """The units of a stage that run again: those of its layers, or of its first `recompute_layers` layers."""
    if layout.recompute != "full":
        return frozenset()
    layers = list(dict.fromkeys(int(unit.split(".")[1]) for unit in units if unit.startswith("layers.")))
    chosen = set(layers if layout.recompute_layers is None else layers[: layout.recompute_layers])
    return frozenset(unit for unit in units if unit.startswith("layers.") and int(unit.split(".")[1]) in chosen)


def unit_runner(meter: UnitMeter, again: frozenset[str]) -> UnitRunner:
    """Runs units with their times taken, and those in `again` under recompute."""

    def run(name: str, unit: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with meter.forward(name):
            # No unit draws random numbers, so there is no generator state to keep.
            if name in again:
                out: Tensor = checkpoint(unit, x, use_reentrant=False, preserve_rng_state=False)
            else:
                out = unit(x)
        if out.requires_grad:
            out.register_hook(lambda grad: meter.gradient_reached(name))  # type: ignore[no-untyped-call]
        return out

    return run
