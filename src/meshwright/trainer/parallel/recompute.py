"""Activation recompute (Chen et al. 2016): a unit keeps its input, perhaps some results, and runs again in backward."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meshwright.trainer.clock import UnitMeter
from meshwright.trainer.models.stage import UnitRunner
from meshwright.trainer.parallel.selective import keep_products

NOTHING: Mapping[str, nn.Module] = {}


def unit_runner(
    meter: UnitMeter, again: frozenset[str], gathered: Mapping[str, nn.Module] = NOTHING, selective: bool = False
) -> UnitRunner:
    """Runs units with their times taken, those in `again` under recompute, or of all layers what is not a product when
    `selective`; those in `gathered` as calls of these modules, which gather the unit's parameters around it."""

    def run(name: str, unit: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        def repeatable(x: Tensor) -> Tensor:
            with meter.repeated(name):
                return unit(x)

        def compute(x: Tensor) -> Tensor:
            # No unit draws random numbers, so there is no generator state to keep.
            if name in again:
                out: Tensor = checkpoint(repeatable, x, use_reentrant=False, preserve_rng_state=False)
            elif selective and name.startswith("layers."):
                out = checkpoint(repeatable, x, use_reentrant=False, preserve_rng_state=False, context_fn=keep_products)
            else:
                out = unit(x)
            return out

        with meter.forward(name):
            out: Tensor = gathered[name](x, compute) if name in gathered else compute(x)
        if out.requires_grad:
            out.register_hook(lambda grad: meter.gradient_reached(name))  # type: ignore[no-untyped-call]
        return out

    return run
