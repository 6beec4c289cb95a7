"""Logs: evidence of a hang, and what skipped steps of fp16 mean."""

from collections.abc import Sequence
from pathlib import Path

from meshwright.diagnosis.hangs import diagnose_hangs
from meshwright.diagnosis.loss_scale import judge_loss_scale
from meshwright.diagnosis.said import Said, counted
from meshwright.files.setup import Setup


def diagnose_logs(recorder: Sequence[Path], logs: Sequence[Path], setup: Setup | None) -> tuple[Said, ...]:
    """What dumps and logs say. Raises InputError when one cannot be read."""
    scale = judge_loss_scale(logs)
    hang = diagnose_hangs(recorder, logs, setup)
    said = tuple(one for one in (hang, scale) if one.findings or one.tables or one.abstained)
    if said:
        return said
    names = ", ".join(path.name for path in logs)
    return (
        Said(counted(len(logs), "log"), abstained=(f"{names}: no watchdog line, failed start or loss scale in it",)),
    )
