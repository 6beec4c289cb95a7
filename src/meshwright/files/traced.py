"""What tracing the trainer's own step says of one rank's memory and messages: plain values, in bytes."""

from dataclasses import dataclass

TRACED = "traced, CPU kernels"
"""What to call every figure of a trace: operators are PyTorch's for the CPU, whose norms and casts keep more than
fused GPU kernels do; fragmentation and the communication library's own buffers are not in it."""


@dataclass(frozen=True, slots=True)
class TracedMessages:
    """Collectives, sends or receives of one kind over one group, in a whole step of this rank."""

    kind: str  # all-reduce, all-gather, reduce-scatter, broadcast, send, receive
    group: str  # what the ranks share: dp, tp, pp, ends (of a tied matrix), world
    count: int
    bytes: int  # of the whole tensors: what an all-gather gives, what a reduce-scatter takes


@dataclass(frozen=True, slots=True)
class TracedRank:
    """Bytes of tensors on the first replica's first tensor rank of one pipeline rank.

    `after_forward`, `backward_peak` and `optimizer_peak` are totals, states included: when most micro-batches are
    alive after a forward, the most inside a backward, the most while weights are updated. `activations` is the first
    without states, logits, loss and the step's tokens; `logits` is the most that tensors as wide as this rank's share
    of the vocabulary ever take (0 also where other tensors are as wide, so that they cannot be told apart).
    """

    pipeline_rank: int
    stages: tuple[int, ...]
    tensors: int  # parameter tensors of this rank
    parameters: int
    gradients: int
    optimizer: int  # moments, master copies, and 4 bytes of step count a tensor with AdamW
    after_forward: int
    activations: int
    logits: int
    backward_peak: int
    optimizer_peak: int
    in_flight: int  # micro-batches alive at the fullest moment, counted on each stage
    messages: tuple[TracedMessages, ...]
    seconds: float  # that the trace took

    @property
    def states(self) -> int:
        """Parameters, gradients and optimizer states."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def peak(self) -> int:
        """The most bytes at any moment of a step."""
        return max(self.backward_peak, self.optimizer_peak)
