"""Bytes of training state a parameter, as the framework that will run the plan holds them."""

from dataclasses import replace

from meshwright.files.setup import Setup
from meshwright.model.states import WEIGHT_BYTES, StateBytes, gradient_bytes, state_bytes


def recipe_of(setup: Setup) -> StateBytes:
    """The recipe of `[training]`, nothing sharded.

    Our trainer keeps its weights in fp32 and casts them for each product (autocast), so that bf16 needs no master
    copy: 4 + 4 + 8 with AdamW instead of 2 + 4 + 4 + 8.
    """
    training = setup.proposal.training
    if setup.runnable_by == "meshwright" and training.precision == "bf16":
        return state_bytes(replace(training, precision="fp32"))
    return state_bytes(training)


def sharded_extra(setup: Setup, zero: int) -> int:
    """Bytes a parameter that a framework shards beside the recipe: DeepSpeed's ZeRO-2 keeps the half-precision
    gradient beside its fp32 copy."""
    training = setup.proposal.training
    twice = setup.runnable_by == "deepspeed" and zero == 2 and training.precision != "fp32"
    return WEIGHT_BYTES[training.precision] if twice and gradient_bytes(training) == 4 else 0
