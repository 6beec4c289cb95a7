"""Bytes of training state that one parameter costs: weight, gradient, master copy, moments."""

from dataclasses import dataclass

from meshwright.model.training import Optimizer, Precision, Training

WEIGHT_BYTES: dict[Precision, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2}
GRADIENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
OPTIMIZER_MOMENTS: dict[Optimizer, int] = {"adamw": 8, "adamw-8bit": 2, "muon": 4, "sgd": 0}


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes a parameter, nothing sharded."""

    weight: int
    gradient: int
    master: int
    moments: int

    @property
    def total(self) -> int:
        """All of them: 16 in fp32 with AdamW, 16 or 18 in half precision."""
        return self.weight + self.gradient + self.master + self.moments

    def sharded(self, zero: int, shards: int) -> float:
        """Bytes a parameter on one of `shards` ranks under a ZeRO stage (Rajbhandari et al. 2020)."""
        parts = (self.master + self.moments, self.gradient, self.weight)
        return sum(part / shards if zero > stage else part for stage, part in enumerate(parts))

    def text(self) -> str:
        """`2 weight + 4 gradient + 4 master + 8 moments = 18 B`."""
        named = (
            (self.weight, "weight"),
            (self.gradient, "gradient"),
            (self.master, "master"),
            (self.moments, "moments"),
        )
        return " + ".join(f"{size} {name}" for size, name in named if size) + f" = {self.total} B"


def gradient_bytes(training: Training) -> int:
    """Bytes of one gradient that waits for the optimizer: 4 in fp32 training, else as `gradient_dtype` says."""
    return 4 if training.precision == "fp32" else GRADIENT_BYTES[training.gradient_dtype]


def state_bytes(training: Training) -> StateBytes:
    """The recipe: fp32 is 4 + 4 + 8, half precision 2 + 4 (or 2) + 4 + 8 with AdamW."""
    master = 0 if training.precision == "fp32" else 4
    moments = OPTIMIZER_MOMENTS[training.optimizer]
    return StateBytes(WEIGHT_BYTES[training.precision], gradient_bytes(training), master, moments)
