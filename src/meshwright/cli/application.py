"""`meshwright VERB FILE [options]`: the verbs and the one way out."""

from collections.abc import Sequence
from typing import Annotated

import typer

from meshwright import __version__
from meshwright.cli.check import check
from meshwright.cli.compare import compare
from meshwright.cli.diagnose import diagnose
from meshwright.cli.init import init
from meshwright.cli.later import LATER, add_later
from meshwright.cli.memory import memory
from meshwright.cli.parity import parity
from meshwright.cli.plan import plan
from meshwright.cli.predict import predict
from meshwright.cli.rebalance import rebalance
from meshwright.cli.report import report
from meshwright.cli.train import train
from meshwright.cli.tune import tune
from meshwright.cli.validate import validate
from meshwright.cli.why import why
from meshwright.cli.wrapper import guarded

VERBS = (init, check, memory, plan, predict, why, validate, train, parity, diagnose, compare, rebalance, tune, report)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"meshwright {__version__}")
        raise typer.Exit


def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Plan, train, profile and mend hybrid-parallel LLM training.

    Exit codes: 0 fine; 1 the answer is no; 2 unreadable input or wrong usage; 3 a run failed; 130 interrupted.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def build() -> typer.Typer:
    """The application with every verb."""
    app = typer.Typer(
        name="meshwright",
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_top)
    for verb in VERBS:
        app.command(verb.__name__)(verb)
    for name in LATER:
        add_later(app, name)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    command = typer.main.get_command(build())

    def verb(given: Sequence[str]) -> None:
        # Not `command.main`, which turns a closed pipe into an exit code of its own.
        with command.make_context("meshwright", list(given)) as context:
            command.invoke(context)

    return guarded(verb, arguments)
