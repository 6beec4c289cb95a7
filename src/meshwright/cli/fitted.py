"""What `validate --fit` answers, and the machine file that it writes."""

from collections.abc import Sequence
from pathlib import Path

from meshwright.files import outputs_validate as out
from meshwright.files.machine_toml import machine_text
from meshwright.files.strict_json import write_whole
from meshwright.planner.validate import Judged
from meshwright.planner.validate_fit import fit_machine


def fitted(judged: Sequence[Judged], name: str, path: Path) -> out.FitPart:
    """Fit the machine to the rows of the table called `name`; write `path` unless that is refused."""
    found = fit_machine(judged)
    if isinstance(found, str):
        return out.FitPart(
            written=None, refused=found, rows=None, median_error_before=None, median_error_left_out=None, scales={},
            unseen=[], gpu=None, links=[],
        )  # fmt: skip
    if not found.refused:
        note = (
            f"fitted to {found.rows} configurations of {name} by `meshwright validate --fit`: median error "
            f"{found.before:.1%} before, {found.after:.1%} on rows left out"
        )
        write_whole(path, machine_text(found.device, found.links, note))
    return out.FitPart(
        written=None if found.refused else str(path), refused=found.refused, rows=found.rows,
        median_error_before=found.before, median_error_left_out=found.after, scales=found.scales,
        unseen=list(found.unseen), gpu=found.device.name, links=[link.name for link in found.links],
    )  # fmt: skip
