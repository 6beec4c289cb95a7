"""One action of a pipeline schedule."""

from typing import Literal, NamedTuple

ActionKind = Literal["F", "B", "I", "W"]


class PipelineAction(NamedTuple):
    """What one pipeline rank does next.

    `kind` is F (forward), B (whole backward), or its two halves: I (gradient of the input, which the stage before is
    waiting for) and W (gradient of the weights, which nobody is waiting for).
    """

    stage: int
    kind: ActionKind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


Order = tuple[PipelineAction, ...]
"""What one pipeline rank does, first to last."""
