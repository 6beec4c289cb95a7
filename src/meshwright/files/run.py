"""The run folder: where each file lies, and the values in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshwright.basics.figures import Mode
from meshwright.timeline.storage import SPANS


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths inside `runs/NAME/`."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan.toml"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def environment(self) -> Path:
        return self.root / "environment.json"

    @property
    def result(self) -> Path:
        return self.root / "result.json"

    @property
    def units(self) -> Path:
        return self.root / "units.json"

    @property
    def memory(self) -> Path:
        return self.root / "memory.json"

    @property
    def findings(self) -> Path:
        return self.root / "findings.json"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def journal(self) -> Path:
        return self.root / "tune.md"

    @property
    def tuned(self) -> Path:
        """In the folder of a loop: what it did."""
        return self.root / "tune.json"

    @property
    def spans(self) -> Path:
        """Folder of one timeline a rank: `rank00003.npz`."""
        return self.root / SPANS

    @property
    def traces(self) -> Path:
        """Folder of one torch.profiler trace a rank: `rank00003.json.gz`."""
        return self.root / "traces"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def model(self) -> Path:
        return self.root / "model"


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One line of `metrics.jsonl`. `step_time_s` is wall seconds; `dilation` is K (1 outside dilated mode)."""

    step: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    step_time_s: float
    mode: Mode
    dilation: float = 1.0
    window: int = 0  # which phase of the run: repeats of a measurement are windows
    profiled: bool = False
    loss_scale: float | None = None  # fp16: at which the gradients were computed
    skipped: bool = False  # fp16: a gradient overflowed, nothing was updated
    data_wait_s: float | None = None  # wall seconds before the step in which rank 0 waited for its batch
    replica_tokens: tuple[int, ...] | None = None  # trained on, of each replica; None: all have equally many
    replica_squares: tuple[int, ...] | None = None  # sum of squared document lengths of each replica; None: equal

    @property
    def device_s(self) -> float:
        """Device seconds: wall over K."""
        return self.step_time_s / self.dilation


@dataclass(frozen=True, slots=True)
class UnitTime:
    """Measured device seconds of one unit for one micro-batch; backward includes recompute when it is on."""

    forward_s: float
    backward_s: float
    samples: int  # how many micro-batches were averaged
    recompute_s: float = 0.0  # the part of backward_s that computed activations again; 0: none, or not told apart


@dataclass(frozen=True, slots=True)
class MeasuredUnits:
    """Per-unit times of a run, and the conditions under which they hold (`units.json`)."""

    units: Mapping[str, UnitTime]
    micro_batch: int
    seq_len: int
    tp: int
    recompute: str
    mode: Mode
    optimizer_s: float = 0.0  # a rank's optimizer step, mean
    optimizer_parameters: float | None = None  # that a rank updated in it, mean; None: not recorded


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of tensors one rank holds after a step, the most alive at once in a step, and its process's peak size."""

    rank: int
    weights: int
    gradients: int
    optimizer: int
    peak_rss: int
    peak_tensors: int | None = None  # None: not tracked


@dataclass(frozen=True, slots=True)
class RunResult:
    """What `train` reports (`result.json`)."""

    run: str
    steps: int
    loss: float
    first_loss: float
    tokens_per_s: float
    step_time_s: float  # median device seconds over the measured windows
    step_time_spread: tuple[float, float]  # lowest and highest window median
    mfu: float | None
    bubble_fraction: float | None
    memory_gib: float | None
    mode: Mode
    dilation: float = 1.0
    windows: tuple[float, ...] = field(default_factory=tuple)  # median device seconds of each window
