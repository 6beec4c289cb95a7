"""`plan.toml`: a job whose layout is complete, with its prediction. Read, checked against the rules, written."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from meshwright.basics.errors import AnswerIsNo, Complaint, InputError
from meshwright.files.cluster_toml import cluster_table
from meshwright.files.complaints import keys_of
from meshwright.files.job import MODEL_SOURCES, Job, parse_job, read_job
from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction, StageMemory
from meshwright.files.resolve import setup_of
from meshwright.files.setup import Setup
from meshwright.files.strict_json import write_whole
from meshwright.files.tables import FORMAT, ModelTable, PredictionTable
from meshwright.layout.batch import Batch, equation, nearest_global, solve
from meshwright.layout.degrees import Layout
from meshwright.layout.problem import Problem, problem_of
from meshwright.layout.proposal import Wanted
from meshwright.layout.rules import LEGALITY
from meshwright.layout.schedules import default_placement
from meshwright.model.architecture import Architecture
from meshwright.model.units import compact, units_of

_DEFAULTS = {
    name: field.default for name, field in Layout.__dataclass_fields__.items() if name not in ("stages", "placement")
}


def missing_keys(wanted: Wanted) -> tuple[str, ...]:
    """The keys that a layout needs before it can run; the others have neutral values when they are left out."""
    missing = [f"layout.{key}" for key in ("dp", "tp", "pp") if getattr(wanted, key) is None]
    if wanted.pp is None or wanted.pp > 1:
        missing += [f"layout.{key}" for key in ("schedule", "stages") if getattr(wanted, key) is None]
    if wanted.micro_batch is None and wanted.micro_batches is None:
        missing.append("batch.micro_batch")
    return tuple(missing)


def refusal(problems: Sequence[Problem]) -> str:
    """The errors among the problems as lines for people; empty when there are none."""
    errors = [problem for problem in problems if problem.severity == "error"]
    return "\n".join(
        f"{', '.join(problem.fields)}: {problem.message}" + (f" ({'; '.join(problem.legal)})" if problem.legal else "")
        for problem in errors
    )


def _batch_of(setup: Setup, dp: int) -> Batch:
    proposal, wanted = setup.proposal, setup.proposal.wanted
    micro, count = wanted.micro_batch, wanted.micro_batches
    if micro is None and count is not None:
        whole, rest = divmod(proposal.global_batch, count * dp)
        micro = whole if not rest else None
    batch = None if micro is None else solve(proposal.global_batch, proposal.seq_len, dp, micro)
    if batch is None or count not in (None, batch.micro_batches):
        below, above = nearest_global(proposal.global_batch, (micro or 1) * (count or 1), dp)
        full = equation(proposal.global_batch, micro, count, dp)
        raise AnswerIsNo(f"the batch equation does not hold: {full} (nearest legal global: {below} or {above})")
    return batch


def _layout_of(arch: Architecture, wanted: Wanted) -> Layout:
    values = {name: getattr(wanted, name) for name in _DEFAULTS if getattr(wanted, name) is not None}
    pp = wanted.pp or 1
    stages = wanted.stages or (tuple(unit.name for unit in units_of(arch)),)
    if wanted.vpp is None and len(stages) % pp == 0:
        values["vpp"] = len(stages) // pp
    schedule = values.setdefault("schedule", _DEFAULTS["schedule"])
    placement = wanted.placement
    if placement is None:
        placement = (0,) if pp == 1 and len(stages) == 1 else default_placement(schedule, pp, values.get("vpp", 1))
    return Layout(stages=stages, placement=placement, **values)


def plan_of(job: Job) -> Plan:
    """The plan that a job states. Raises InputError naming the missing keys, and AnswerIsNo when the layout cannot run.

    Whether it fits in memory is the predictor's question, and no reason to refuse here.
    """
    setup = setup_of(job)
    wanted = setup.proposal.wanted
    broken = refusal([problem_of(rule, setup.proposal) for rule in LEGALITY if not rule.holds(setup.proposal)])
    if broken:
        raise AnswerIsNo(broken)
    missing = missing_keys(wanted)
    if missing:
        hint = f"`meshwright plan {job.file or 'JOB'} -o plan.toml` fills them"
        rule = "the layout is not complete: missing " + ", ".join(missing)
        raise InputError((Complaint("", "", rule, hint, job.file),))
    layout = _layout_of(setup.proposal.arch, wanted)
    batch = _batch_of(setup, layout.dp)
    table = job.tables.prediction
    return Plan(setup, layout, batch, None if table is None else _prediction_of(table))


def read_plan(path: Path | str, overrides: Sequence[str] = ()) -> Plan:
    """Read a plan.toml, or a job whose layout is complete. An override drops the prediction: it was of another plan.

    Raises InputError for anything unreadable or incomplete, AnswerIsNo when the layout breaks a rule.
    """
    job = read_job(path, overrides)
    plan = plan_of(job)
    return Plan(plan.setup, plan.layout, plan.batch) if overrides else plan


def parse_plan(text: str, path: Path | None = None) -> Plan:
    """The plan in a TOML text."""
    return plan_of(parse_job(text, path))


def _prediction_of(table: PredictionTable) -> Prediction:
    values = table.model_dump()
    low, high = values["step_time_range_s"]
    memory = [StageMemory(**{**m, "stages": tuple(m["stages"]), "range": _pair(m["range"])}) for m in values["memory"]]
    values |= {
        "step_time_range_s": (low, high), "stage_compute_s": tuple(values["stage_compute_s"]),
        "idle_fraction": tuple(values["idle_fraction"]), "memory": tuple(memory),
    }  # fmt: skip
    return Prediction(**values)


def _pair(values: Sequence[int] | None) -> tuple[int, int] | None:
    return None if values is None else (values[0], values[1])


def _prediction_table(prediction: Prediction) -> dict[str, Any]:
    names = [name for name in Prediction.__dataclass_fields__ if name != "memory"]
    table: dict[str, Any] = {name: getattr(prediction, name) for name in names}
    return {**table, "memory": [_fields(rank) for rank in prediction.memory]}


def _model_table(arch: Architecture, folder: Path | None) -> dict[str, Any]:
    if arch.config_path is not None:
        config = Path(arch.config_path)
        return {"config": str(config) if folder is None else os.path.relpath(config.resolve(), folder.resolve())}
    dimensions = [key for key in keys_of(ModelTable) if key not in (*MODEL_SOURCES, "label", "latent")]
    latent = None if arch.latent is None else _fields(arch.latent)
    return {"label": arch.name, **{key: getattr(arch, key) for key in dimensions}, "latent": latent}


def _cluster_table(setup: Setup, folder: Path | None) -> dict[str, Any]:
    proposal = setup.proposal
    return cluster_table(proposal.cluster, proposal.written, setup.machine, folder)


def _data_table(setup: Setup, folder: Path | None) -> dict[str, Any]:
    values = _fields(setup.data)
    for key in ("path", "tokenizer"):
        if values[key] is not None and folder is not None:
            values[key] = os.path.relpath(Path(values[key]).resolve(), folder.resolve())
    return values


def _fields(value: object, leave_out: Sequence[str] = ()) -> dict[str, Any]:
    names = type(value).__dataclass_fields__  # type: ignore[attr-defined]
    return {name: getattr(value, name) for name in names if name not in leave_out}


def _toml(value: Any) -> Any:
    """TOML has no None and no tuples: drop the one, spell the other as lists."""
    if isinstance(value, Mapping):
        return {key: _toml(entry) for key, entry in value.items() if entry is not None}
    return [_toml(entry) for entry in value] if isinstance(value, list | tuple) else value


def plan_text(plan: Plan, folder: Path | None = None) -> str:
    """The plan as TOML. Paths start at `folder` when it is given, the folder the text will lie in."""
    setup, layout, batch = plan.setup, plan.layout, plan.batch
    claims = {key: {"true": True, "false": False}.get(text, text) for key, text in setup.proposal.claims.items()}
    tables: dict[str, Any] = {
        "format": FORMAT,
        "model": _model_table(setup.proposal.arch, folder),
        "cluster": _cluster_table(setup, folder),
        "batch": {
            "global": batch.global_batch, "seq_len": batch.seq_len, "micro_batch": batch.micro_batch,
            "micro_batches": batch.micro_batches,
        },
        "training": _fields(setup.proposal.training),
        "data": _data_table(setup, folder),
        "layout": {
            **_fields(layout, ("stages", "placement")),
            "stages": [compact(units) for units in layout.stages], "placement": layout.placement,
        },
        "search": {"runnable_by": setup.runnable_by, "risk": setup.risk},
        "profile": _fields(setup.profile),
        "tune": _fields(setup.tune),
        "claims": claims,
        "prediction": None if plan.prediction is None else _prediction_table(plan.prediction),
    }  # fmt: skip
    return tomli_w.dumps({name: table for name, table in _toml(tables).items() if table != {}})


def write_plan(plan: Plan, path: Path | str) -> None:
    """Write plan.toml; it appears whole or not at all. Raises OSError."""
    path = Path(path)
    write_whole(path, plan_text(plan, path.parent))
