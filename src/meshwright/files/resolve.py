"""From what was typed to values: the setup of a job, with every gap that is not searched filled and its origin kept."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.figures import ValueOrigin
from meshwright.basics.names import nearest
from meshwright.basics.quantities import GIB
from meshwright.files.cluster_of import cluster_of
from meshwright.files.cluster_toml import LOCAL
from meshwright.files.complaints import keys_of, shown
from meshwright.files.job import MODEL_SOURCES, Job, read_job
from meshwright.files.model_of import model_of
from meshwright.files.setup import DataSource, Profiling, Setup, Tuning
from meshwright.files.tables import FORMAT, ModelTable
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.model.units import expand_all

Value = TypeVar("Value")
_NAMELESS = ("job", "plan")  # file names that say nothing: the folder names the setup


@dataclass
class _Collected:
    """Complaints of several steps, so that the reader sees them all at once."""

    file: str
    complaints: list[Complaint]

    def attempt(self, step: Callable[[], Value]) -> Value | None:
        try:
            return step()
        except InputError as error:
            self.complaints += [replace(found, file=found.file or self.file) for found in error.complaints]
            return None


def setup_name(path: Path | None) -> str:
    """The file's stem; for `job.toml` and `plan.toml` the name of its folder."""
    if path is None:
        return "job"
    return path.resolve().parent.name or path.stem if path.stem in _NAMELESS else path.stem


def wanted_of(job: Job, arch: Architecture) -> Wanted:
    """The fixed parts of the layout, stages expanded to unit names. Raises InputError for unknown units."""
    table, batch = job.tables.layout, job.tables.batch
    values = table.model_dump(exclude_none=True, exclude={"stages", "placement"})
    stages = None
    if table.stages is not None:
        stages = tuple(
            expand_all(arch, texts, f"layout.stages[{index}]") for index, texts in enumerate(table.stages)
        )  # fmt: skip
    placement = None if table.placement is None else tuple(table.placement)
    return Wanted(
        **values, stages=stages, placement=placement, micro_batch=batch.micro_batch, micro_batches=batch.micro_batches
    )  # fmt: skip


def _tuning_of(job: Job) -> Tuning:
    table = job.tables.tune
    known = [name for name in Wanted.__slots__ if name != "micro_batches"]
    keys = [key.removeprefix("layout.").removeprefix("batch.") for key in table.change]
    unknown = [
        Complaint(
            f"tune.change[{index}]", repr(key), "is not a key that tune could change",
            f"did you mean {near!r}?" if (near := nearest(key, known)) else f"legal: {', '.join(known)}",
        )
        for index, key in enumerate(keys)
        if key not in known
    ]  # fmt: skip
    if unknown:
        raise InputError(tuple(unknown))
    return Tuning(tuple(keys), table.mode, table.repeats, table.steps, table.max_changes)


def _training_of(job: Job) -> Training:
    values = job.tables.training.model_dump()
    return Training(**{**values, "betas": tuple(values["betas"])})


def _data_of(job: Job) -> DataSource:
    values = job.tables.data.model_dump()
    places = {key: str(job.folder / values[key]) for key in ("path", "tokenizer") if values[key] is not None}
    return DataSource(**{**values, **places})


def _claims_of(job: Job) -> dict[str, str]:
    claims = job.tables.claims.model_dump(exclude_none=True)
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in claims.items()}


def _from_config(job: Job) -> dict[str, ValueOrigin]:
    """The keys of [model] whose values stand in the config.json that the job names."""
    if job.tables.model.config is None:
        return {}
    keys = (f"model.{key}" for key in keys_of(ModelTable) if key not in (*MODEL_SOURCES, "label"))
    return {key: "file" for key in keys if not job.given(key)}


def setup_of(job: Job) -> Setup:
    """The setup of a job. Raises InputError with every complaint about model, cluster, stages and tuning."""
    found = _Collected(job.file, [])
    arch = found.attempt(lambda: model_of(job))
    resolved = found.attempt(lambda: cluster_of(job))
    wanted = found.attempt(lambda: wanted_of(job, arch)) if arch else None
    tuning = found.attempt(lambda: _tuning_of(job))
    if found.complaints or arch is None or resolved is None or wanted is None or tuning is None:
        raise InputError(tuple(found.complaints))
    tables = job.tables
    origins: dict[str, ValueOrigin] = {**job.origins, **_from_config(job), **resolved.detected}
    proposal = Proposal(
        arch=arch, cluster=resolved.cluster, training=_training_of(job), global_batch=tables.batch.global_,
        seq_len=tables.batch.seq_len, wanted=wanted, claims=_claims_of(job),
        written={field: (field, origin) for field, origin in origins.items()},
    )  # fmt: skip
    return Setup(
        name=setup_name(job.path), proposal=proposal,
        data=_data_of(job),
        profile=Profiling(tables.profile.every, tables.profile.steps, tuple(tables.profile.tools)),
        tune=tuning, runnable_by=tables.search.runnable_by, path=job.path, machine=resolved.machine,
        risk=tables.search.risk,
        cost_of=None if tables.search.cost_of is None else job.folder / tables.search.cost_of,
    )  # fmt: skip


def read_setup(path: Path | str, overrides: Sequence[str] = ()) -> Setup:
    """`setup_of(read_job(path, overrides))`."""
    return setup_of(read_job(path, overrides))


def _resolved_model(job: Job, setup: Setup) -> dict[str, object]:
    arch = setup.proposal.arch
    dimensions = {key: getattr(arch, key) for key in keys_of(ModelTable) if key not in (*MODEL_SOURCES, "label")}
    dimensions["latent"] = None if arch.latent is None else asdict(arch.latent)
    return {**job.tables.model.model_dump(exclude_none=True), **dimensions}


def _resolved_cluster(job: Job, setup: Setup) -> dict[str, object]:
    """As typed, with what was filled in; in a mixed cluster the groups say what each kind has."""
    cluster, table = setup.proposal.cluster, job.tables.cluster
    between = None if cluster.one_domain else cluster.inter.name
    found: dict[str, object] = {"gpus": cluster.gpus, "inter_node": between}
    if table.groups is None:
        found |= {
            "gpu": table.gpu or (LOCAL if cluster.local else cluster.device.name),
            "gpus_per_node": cluster.gpus_per_node, "intra_node": cluster.intra.name,
            "memory_gib": round(cluster.memory_bytes / GIB, 3),
        }  # fmt: skip
    shared = {
        "nics_per_node": cluster.nics_per_node,
        "oversubscription": cluster.oversubscription,
        "rails": cluster.rails,
    }
    values: dict[str, object] = {**table.model_dump(), **found}
    return {**values, **({} if cluster.one_domain else shared)}


def resolved(job: Job) -> dict[str, tuple[object, str]]:
    """Every key of the job with its value and its origin; None where it is free to be chosen or does not apply."""
    setup = setup_of(job)
    rows: dict[str, tuple[object, str]] = {}
    for name in type(job.tables).model_fields:
        table = getattr(job.tables, name)
        if name in ("format", "prediction"):
            continue
        values: dict[str, object] = table.model_dump(by_alias=True)
        if name == "model":
            values = _resolved_model(job, setup)
        elif name == "cluster":
            values = _resolved_cluster(job, setup)
        for key, value in values.items():
            field = f"{name}.{key}"
            rows[field] = (value, setup.proposal.written[field][1])
    return rows


def resolved_text(job: Job) -> str:
    """The resolved job as TOML: every value with its origin beside it; free keys and derived sizes as comments."""
    lines: list[str] = [f"format = {FORMAT}"]
    table = ""
    derived = [key for key in MODEL_SOURCES if job.given(f"model.{key}")]
    for field, (value, origin) in resolved(job).items():
        name, _, key = field.partition(".")
        if name != table:
            table = name
            lines += ["", f"[{name}]"]
        if value is None:
            if name in ("layout", "batch"):
                lines.append(f"# {key} is free: the planner chooses")
            continue
        silent = "# " if name == "model" and derived and origin != "user" else ""
        lines.append(f"{silent + key + ' = ' + shown(value, 200):<44} # {origin}")
    return "\n".join(lines) + "\n"
