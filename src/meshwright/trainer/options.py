"""What a run is asked to do beside its plan: phases, clock, checkpoints. Travels to the ranks as `options.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.figures import Mode
from meshwright.files.strict_json import dump, from_json, load

OPTIONS_FILE = "options.json"


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of consecutive steps in one mode; `profile` asks for a torch.profiler trace of each rank.

    The index of a phase is the `window` of its lines in `metrics.jsonl`.
    """

    mode: Mode
    steps: int
    profile: bool = False


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Everything the ranks need beside the plan.

    `tokens` is a prepared token folder (see `data.prepare`); the launcher prepares one when it is None. `dilation`
    is K of the dilated clock, needed by phases in that mode. `unit_costs` gives (forward, backward) device seconds of
    each unit for one micro-batch, needed by emulated phases. `checkpoint_every` counts steps; 0 writes none.
    `resume` continues from the newest checkpoint of the run folder. `timeout_s` bounds every wait for a peer.
    `log_every` is how many steps lie between two lines of progress. `weights` is a folder of safetensors to start from;
    None: random weights. `export` leaves the trained model in the run folder as one that transformers loads.
    """

    run: Path
    phases: tuple[Phase, ...]
    tokens: Path | None = None
    dilation: float | None = None
    checkpoint_every: int = 0
    resume: bool = False
    unit_costs: Mapping[str, tuple[float, float]] | None = None
    timeout_s: float = 120.0
    log_every: int = 1
    weights: Path | None = None
    export: bool = False

    @property
    def steps(self) -> int:
        """Steps of all phases together."""
        return sum(phase.steps for phase in self.phases)


def check_options(options: TrainOptions) -> None:
    """Raise InputError with every option that contradicts another or lies outside its range."""
    found: list[Complaint] = []

    def need(holds: bool, field: str, value: object, rule: str, legal: str = "") -> None:
        if not holds:
            found.append(Complaint(field, str(value), rule, legal))

    modes = {phase.mode for phase in options.phases}
    need(bool(options.phases), "phases", "", "at least one phase is needed")
    for index, phase in enumerate(options.phases):
        need(phase.steps > 0, f"phases[{index}].steps", phase.steps, "must be at least 1")
        need(phase.mode != "predicted", f"phases[{index}].mode", phase.mode, "cannot be run",
             "measured, dilated or emulated")  # fmt: skip
    need("dilated" not in modes or options.dilation is not None, "dilation", "", "is needed by a dilated phase")
    need(options.dilation is None or options.dilation >= 1, "dilation", options.dilation, "must be at least 1")
    need("emulated" not in modes or bool(options.unit_costs), "unit_costs", "", "is needed by an emulated phase")
    need(options.timeout_s > 0, "timeout_s", options.timeout_s, "must be more than 0")
    need(options.checkpoint_every >= 0, "checkpoint_every", options.checkpoint_every, "must be 0 or more")
    need(options.log_every >= 1, "log_every", options.log_every, "must be at least 1")
    if found:
        raise InputError(tuple(found))


def write_options(options: TrainOptions, path: Path | None = None) -> Path:
    """Write the options to `path` (default: `options.json` of the run folder), whole or not at all; the path.

    The run folder itself is not written: it is wherever the file lies, so a run can be moved.
    """
    path = path or options.run / OPTIONS_FILE
    dump({f.name: getattr(options, f.name) for f in fields(options) if f.name != "run"}, path)
    return path


def read_options(path: Path) -> TrainOptions:
    """The options of a run: `path` is its folder or its `options.json`. Raises InputError naming file and field."""
    path = path / OPTIONS_FILE if path.is_dir() else path
    data: dict[str, Any] = load(path)
    options = from_json({"run": str(path.parent), **data}, TrainOptions, file=str(path))
    costs = options.unit_costs
    return replace(options, unit_costs=None if costs is None else dict(costs))
