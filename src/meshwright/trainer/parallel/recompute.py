"""Activation recompute (Chen et al. 2016): a unit keeps only its input and runs again in the backward."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meshwright.trainer.clock import UnitMeter
from meshwright.trainer.models.decoder import UnitRunner

NOTHING: Mapping[str, nn.Module] = {}


def unit_runner(meter: UnitMeter, again: frozenset[str], gathered: Mapping[str, nn.Module] = NOTHING) -> UnitRunner:
    """Runs units with their times taken, those in `again` under recompute, those in `gathered` as calls of these
    modules, which gather the unit's parameters around it."""

    def run(name: str, unit: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        def repeatable(x: Tensor) -> Tensor:
            with meter.repeated(name):
                return unit(x)

        def compute(x: Tensor) -> Tensor:
            if name not in again:
                return unit(x)
            # No unit draws random numbers, so there is no generator state to keep.
            out: Tensor = checkpoint(repeatable, x, use_reentrant=False, preserve_rng_state=False)
            return out

        with meter.forward(name):
            out: Tensor = gathered[name](x, compute) if name in gathered else compute(x)
        if out.requires_grad:
            out.register_hook(lambda grad: meter.gradient_reached(name))  # type: ignore[no-untyped-call]
        return out

    return run
