"""The architecture that a job's table [model] names."""

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.quantities import parse_count
from meshwright.files.complaints import naming_field
from meshwright.files.job import Job
from meshwright.files.tables import ModelTable
from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.model.sanity import complaints_about, complaints_about_company


def model_of(job: Job) -> Architecture:
    """From a config.json (its path starts at the job's folder), the catalogue, a count, or plain dimensions.

    Raises InputError for unknown names and families, unreadable files and dimensions that contradict each other.
    """
    table = job.tables.model
    if table.config is not None:
        from meshwright.model.huggingface import read_config

        path = job.folder / table.config
        return naming_field(lambda: read_config(path), "model.config")
    if table.name is not None:
        from meshwright.model.catalogue import named

        name = table.name
        return naming_field(lambda: named(name), "model.name")
    if table.params is not None:
        from meshwright.model.propose import from_count

        written = table.params
        count = parse_count(written, "model.params") if isinstance(written, str) else written
        return naming_field(lambda: from_count(count), "model.params")
    return plain(table)


def _spelled(field: str) -> str:
    return f"model.{field}"


def _contradictions(table: ModelTable) -> list[Complaint]:
    given = table.model_dump(exclude_none=True)
    found = [*complaints_about(given, _spelled), *complaints_about_company(given, _spelled)]
    if table.positions == "learned" and not table.max_positions:
        found.append(Complaint("model.max_positions", "", "is required with learned positions"))
    return found


def default_ffn_hidden(hidden: int, gated: bool) -> int:
    """4 times hidden; gated networks have three matrices, so 8/3 times hidden, rounded up to a multiple of 64."""
    return -(-8 * hidden // 3 // 64) * 64 if gated else 4 * hidden


def plain(table: ModelTable) -> Architecture:
    """Plain dimensions as an architecture. Raises InputError when they contradict each other."""
    complaints = _contradictions(table)
    if complaints:
        raise InputError(tuple(complaints))
    given = table.model_dump(exclude_none=True, exclude={"config", "name", "params", "label", "family"})
    hidden, heads = given["hidden"], given["heads"]
    gated = given.get("gated", Architecture.__dataclass_fields__["gated"].default)
    latent = None if table.latent is None else LatentAttention(**table.latent.model_dump())
    defaults = {
        "kv_heads": heads, "head_dim": latent.nope_dim + latent.rope_dim if latent else hidden // heads,
        "ffn_hidden": default_ffn_hidden(hidden, gated),
    }  # fmt: skip
    values = {**defaults, **given, "latent": latent}
    values |= {key: tuple(values[key]) for key in ("dense_layers", "global_layers") if key in values}
    return Architecture(name=table.label or "plain", family=table.family or "plain", **values)
