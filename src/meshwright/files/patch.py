"""Changes to a plan: a patch maps a dotted key ("layout.recompute", "batch.micro_batch") to its new value."""

from collections.abc import Mapping
from dataclasses import fields, replace

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.names import nearest
from meshwright.files.plan import Plan
from meshwright.layout.batch import equation, solve
from meshwright.layout.degrees import Layout
from meshwright.layout.proposal import proposal_of
from meshwright.model.units import compact

_LAYOUT_KEYS = tuple(f"layout.{f.name}" for f in fields(Layout))
PATCH_KEYS: tuple[str, ...] = (*_LAYOUT_KEYS, "batch.micro_batch")


def _frozen(value: object) -> object:
    """Lists as read from JSON or TOML become tuples, as values hold them."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value


def apply(plan: Plan, change: Mapping[str, object]) -> Plan:
    """The plan after the change, without a prediction. The batch follows from dp and the micro-batch.

    Raises InputError for unknown keys, and when the batch equation has no whole solution.
    """
    unknown = [key for key in change if key not in PATCH_KEYS]
    if unknown:
        raise InputError(
            tuple(
                Complaint(
                    field=key, value="", rule="not a key of a plan", legal=f"did you mean {nearest(key, PATCH_KEYS)}?"
                )
                for key in unknown
            )
        )
    values = {key.removeprefix("layout."): _frozen(value) for key, value in change.items() if key.startswith("layout.")}
    layout = replace(plan.layout, **values)  # type: ignore[arg-type]
    micro_batch = change.get("batch.micro_batch", plan.batch.micro_batch)
    if not isinstance(micro_batch, int):
        raise InputError((Complaint("batch.micro_batch", repr(micro_batch), "must be a whole number"),))
    batch = solve(plan.batch.global_batch, plan.batch.seq_len, layout.dp, micro_batch)
    if batch is None:
        found = equation(plan.batch.global_batch, micro_batch, None, layout.dp)
        raise InputError((Complaint("batch.micro_batch", str(micro_batch), f"{found} has no whole solution"),))
    setup = replace(plan.setup, proposal=proposal_of(plan.setup.proposal, layout, batch))
    return Plan(setup, layout, batch)


def difference(before: Plan, after: Plan) -> dict[str, object]:
    """The patch that turns `before` into `after`."""
    changed: dict[str, object] = {
        f"layout.{f.name}": getattr(after.layout, f.name)
        for f in fields(Layout)
        if getattr(before.layout, f.name) != getattr(after.layout, f.name)
    }
    if before.batch.micro_batch != after.batch.micro_batch:
        changed["batch.micro_batch"] = after.batch.micro_batch
    return changed


def value_text(key: str, value: object) -> str:
    """A changed value as people read it; stages, as a plan or as JSON holds them, in their short spelling."""
    if key == "layout.stages" and isinstance(value, list | tuple):
        return " | ".join(", ".join(compact(stage)) for stage in value)
    return str(value)


def change_text(change: Mapping[str, object]) -> str:
    """`layout.recompute = none`."""
    return "; ".join(f"{key} = {value_text(key, value)}" for key, value in change.items())
