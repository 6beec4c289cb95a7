"""Verbs that are named and not there yet: they say so, in one line, with exit code 2."""

from collections.abc import Mapping

import typer

from meshwright.basics.errors import bad_input

LATER: Mapping[str, str] = {
    "rehearse": "real processes on emulated devices",
    "scale": "a scalability test",
    "calibrate": "measure devices and links",
    "export": "a plan for another framework",
    "import": "another framework's configuration",
    "explore": "the report, live",
}
"""Verb -> what it will do."""


def add_later(app: typer.Typer, name: str) -> None:
    """Give the application a verb that only says that this version does not have it."""

    def verb(context: typer.Context) -> None:
        raise bad_input(f"this version does not have `{name}` yet", legal="`meshwright --help` lists what it has")

    accept_all = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=f"Not in this version: {LATER[name]}.", context_settings=accept_all)(verb)
