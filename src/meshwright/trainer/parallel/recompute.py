"""Activation recompute (Chen et al. 2016): a unit keeps only its input and runs again in the backward."""

from collections.abc import Callable

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from meshwright.trainer.clock import UnitMeter
from meshwright.trainer.models.decoder import UnitRunner


def unit_runner(meter: UnitMeter, again: frozenset[str]) -> UnitRunner:
    """Runs units with their times taken, and those in `again` under recompute."""

    def run(name: str, unit: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        def repeatable(x: Tensor) -> Tensor:
            with meter.repeated(name):
                return unit(x)

        with meter.forward(name):
            # No unit draws random numbers, so there is no generator state to keep.
            if name in again:
                out: Tensor = checkpoint(repeatable, x, use_reentrant=False, preserve_rng_state=False)
            else:
                out = unit(x)
        if out.requires_grad:
            out.register_hook(lambda grad: meter.gradient_reached(name))  # type: ignore[no-untyped-call]
        return out

    return run
