"""What became of a run folder in which the ranks could not even say why they ended."""

import shutil
from pathlib import Path

from meshwright.basics.errors import RunFailed
from meshwright.trainer.failure import failures_file

_FULL_BYTES = 64 * 1024  # less than this left: not even a report of some lines fits


def lost_place(run: Path, last_step: int | None) -> RunFailed | None:
    """The error of a run that ended after it had started because its folder went away or its disk filled up.

    None when the folder holds the agent's report, or when nothing is wrong with it.
    """
    if failures_file(run).exists():
        return None
    when = "before its first step" if last_step is None else f"after step {last_step}"
    if not run.is_dir():
        return RunFailed(f"the run failed {when}: its folder {run} was removed")
    if shutil.disk_usage(run).free < _FULL_BYTES:
        return RunFailed(f"the run failed {when}: the disk is full, {run} could not be written")
    if last_step is None:
        return None
    return RunFailed(f"the run failed {when}: its ranks could not say why (logs in {failures_file(run).parent})")
