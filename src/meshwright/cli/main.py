"""The console script. It loads nothing at first, so that Ctrl-C is one line even while the rest is being loaded."""

import gc
import sys
from collections.abc import Sequence

_MANY = 50_000  # new objects before the collector of cycles looks: loading makes them by the thousand, and no cycles


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        from meshwright.cli.application import run as run_verb

        return run_verb(arguments)
    except KeyboardInterrupt:
        from meshwright.cli.wrapper import guarded

        return guarded(_interrupted, arguments)


def _interrupted(arguments: Sequence[str]) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line of this process."""
    gc.set_threshold(_MANY)
    sys.exit(run(sys.argv[1:]))
