"""Bytes of training state a parameter, as the framework that will run the plan holds them."""

from dataclasses import dataclass, replace

from meshwright.basics.figures import Constant
from meshwright.files.setup import Setup
from meshwright.model.activations import value_bytes
from meshwright.model.states import WEIGHT_BYTES, StateBytes, gradient_bytes, state_bytes
from meshwright.predictor.stacks import stack_of

BLOCK_SCALES = Constant(2 * 4 / 256, "data sheet", "Dettmers et al. 2022: a 4-byte scale for each 256 values, twice")
"""Bytes a parameter beside the two 8-bit moments of AdamW-8bit."""

FP8_COPY = {
    "fp8": Constant(1.0, "data sheet", "NVIDIA Transformer Engine: weights cast once a step, a byte a value"),
    "mxfp8": Constant(1 + 1 / 32, "data sheet", "OCP MX v1.0: a byte a value, a scale for each 32"),
    "nvfp4": Constant(1 + 1 / 8, "data sheet", "NVIDIA Transformer Engine: half a byte, a scale for 16, both ways"),
}
"""Bytes a parameter of the quantised weights that are kept beside the half-precision ones."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes a parameter, nothing sharded, and how a stack keeps them. `matrix` moments are those of the layers, `ends`
    those of embedding and head (Muon leaves them to AdamW)."""

    weight: float
    quantised: float  # kept whole beside the weight by those who compute in 8 bits
    compute: float  # of a gathered parameter
    gradient: float
    master: float
    matrix_moments: float
    end_moments: float
    step: float  # exists during the optimizer step only
    unsharded: float  # kept whatever the ZeRO stage
    sharded: float  # kept of the parameters that a rank updates
    second_gradient: float  # sharded beside the gradient, under ZeRO-2
    whole_gradients: bool  # they exist from the start of the step

    def text(self) -> str:
        """`2 weight + 4 gradient + 4 master + 8 moments = 18 B`."""
        named = (
            (self.weight, "weight"), (self.quantised, "8-bit weight"), (self.gradient + self.unsharded, "gradient"),
            (self.master, "master"), (self.matrix_moments, "moments"),
        )  # fmt: skip
        total = sum(size for size, _ in named)
        return " + ".join(f"{size:g} {name}" for size, name in named if size) + f" = {total:g} B"


def recipe_of(setup: Setup) -> StateBytes:
    """The recipe of `[training]`, nothing sharded.

    Stacks that keep their weights in fp32 and cast or gather them in half precision need no master copy: 4 + 4 + 8
    with AdamW instead of 2 + 4 + 4 + 8. (Our trainer does so under bf16 and fp16.)
    """
    training = setup.proposal.training
    stack = stack_of(setup)
    if stack.pure_half and training.precision != "fp32":
        plain = state_bytes(training)
        return replace(plain, master=0, moments=plain.moments // 2)
    if stack.weights_fp32 and (training.precision in ("bf16", "fp16") or setup.runnable_by != "meshwright"):
        return state_bytes(replace(training, precision="fp32"))
    return state_bytes(training)


def full_recipe(setup: Setup) -> Recipe:
    """The recipe with everything that the stack adds to it."""
    training, stack, plain = setup.proposal.training, stack_of(setup), recipe_of(setup)
    moments = plain.moments + (BLOCK_SCALES.value if training.optimizer == "adamw-8bit" else 0.0)
    quantised = FP8_COPY[training.precision].value if training.precision in FP8_COPY and plain.master else 0.0
    if quantised and stack.fp8_weights and training.precision != "nvfp4":  # by rows and columns, instead of two bytes
        quantised = 2 * quantised - plain.weight
    half = training.precision != "fp32"
    master = min(plain.master, stack.master_bytes)
    twice = stack.name.startswith("deepspeed") and half and gradient_bytes(training) == 4
    return Recipe(
        plain.weight, quantised, min(plain.weight, value_bytes(training)), plain.gradient, master, moments,
        max(moments, 8.0) if training.optimizer == "muon" else moments, stack.step_bytes if half else 0.0,
        stack.unsharded_bytes, stack.sharded_bytes, WEIGHT_BYTES[training.precision] if twice else 0.0,
        stack.whole_gradients,
    )  # fmt: skip
