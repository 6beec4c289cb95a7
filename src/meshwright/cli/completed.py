"""A plan to predict: as a file states it, or with its stages cut where they are all that the file leaves open."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from meshwright.basics.errors import InputError
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import missing_keys, read_plan
from meshwright.files.resolve import read_setup


def read_or_cut(file: Path | str, overrides: Sequence[str] = ()) -> tuple[Plan, bool]:
    """The plan, and whether its stages were cut here: so that the slowest is as fast as can be, as `plan` cuts them
    while memory is not short, or evenly where there are too few whole layers for that.

    Raises InputError where more is missing, AnswerIsNo when the layout cannot run.
    """
    try:
        return read_plan(file, overrides), False
    except InputError as error:
        if not _only_stages_are_missing(file, overrides):
            raise error
    from meshwright.layout.given import chunks_of
    from meshwright.layout.partition import even_stages
    from meshwright.planner.leveling import cut_by_time

    proposal = read_setup(file, overrides).proposal
    chunks = chunks_of(proposal)
    even = even_stages(proposal.arch, (proposal.wanted.pp or 1) * chunks)
    plan = read_plan(file, (*overrides, f"layout.stages={json.dumps(even)}"))
    try:
        return replace(plan, layout=cut_by_time(plan.setup, plan.layout, plan.batch, chunks)), True
    except ValueError:
        return plan, True


def predicted(file: Path | str, overrides: Sequence[str] = ()) -> tuple[Plan, bool]:
    """The same with its prediction."""
    from meshwright.predictor.step import predict

    plan, cut = read_or_cut(file, overrides)
    return replace(plan, prediction=predict(plan)), cut


def _only_stages_are_missing(file: Path | str, overrides: Sequence[str]) -> bool:
    proposal = read_setup(file, overrides).proposal
    wanted = proposal.wanted
    return missing_keys(wanted) == ("layout.stages",) and wanted.placement is None
