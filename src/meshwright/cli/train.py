"""`meshwright train`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Data, Json, PlanFile, Resolved, RunName, Runs, Sets


class TrainMode(StrEnum):
    """How steps are timed."""

    MEASURED = "measured"
    DILATED = "dilated"


def train(
    plan: PlanFile,
    run: RunName = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, max=10**9, help="Instead of [training] steps.")] = None,
    mode: Annotated[TrainMode, typer.Option("--mode", help="How steps are timed.")] = TrainMode.MEASURED,
    profile: Annotated[int, typer.Option("--profile", min=0, max=1000, help="Profile N more steps.")] = 0,
    data: Data = None,
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", metavar="STEPS", min=0, max=10**9, help="0: no checkpoints.")
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run folder from its newest checkpoint.")
    ] = False,
    weights: Annotated[
        Path | None, typer.Option("--weights", metavar="DIR", help="Start from a Hugging Face folder's safetensors.")
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Leave the trained model in the run folder as transformers loads it.")
    ] = False,
    runs: Runs = Path("runs"),
    overrides: Sets = None,
    as_json: Json = False,
    resolved: Resolved = False,
) -> None:
    """Train a plan, or a job whose layout is complete.

    Alone it starts the local processes; under torchrun or SLURM it joins.
    """
    from meshwright.cli import answers
    from meshwright.cli.show import progress, show, show_resolved

    if resolved:
        return show_resolved(plan, overrides or (), as_json)
    from meshwright.reports.terminal_run import train_view

    answer = answers.train(
        plan, overrides or (), runs=runs, name=run, steps=steps, mode=mode.value, profile=profile, data=data,
        checkpoint_every=checkpoint_every, resume=resume, weights=weights, export=export, progress=progress,
    )  # fmt: skip
    show(answer, train_view, as_json)
