"""Exit codes, every verb alike: 0 fine, 1 the answer is no, 2 input or usage, 3 a run failed, 130 interrupted."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import typer

from meshwright.basics.errors import AnswerIsNo, InputError, RunFailed

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""The command-line library's own error for wrong usage, wherever its version keeps it."""


def _error(code: int, message: str, as_json: bool, complaints: Sequence[Any] = ()) -> int:
    """Say what is wrong on standard error; with --json also as an object on standard output. Returns the exit code."""
    print(message, file=sys.stderr)
    if as_json:
        from meshwright.cli.show import print_json
        from meshwright.files.outputs import FORMAT

        found = [{key: getattr(c, key) for key in ("field", "value", "rule", "legal", "file")} for c in complaints]
        print_json({"format": FORMAT, "error": {"exit_code": code, "message": message, "complaints": found}})
        sys.stdout.flush()
    return code


def _silence() -> None:
    """Send what is still buffered nowhere: the reader has gone, or the disk is full."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _os_error(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"meshwright: {name}{error.strerror or error}"


def _exit_code(command: Callable[[Sequence[str]], object], arguments: Sequence[str]) -> int:
    try:
        command(arguments)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def guarded(command: Callable[[Sequence[str]], object], arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Nothing escapes but a defect of ours, which shows its traceback."""
    as_json = "--json" in arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _exit_code(command, arguments)
        sys.stdout.flush()
        return code
    except InputError as error:
        return _error(error.exit_code, f"meshwright: {error}", as_json, error.complaints)
    except (AnswerIsNo, RunFailed) as error:
        return _error(error.exit_code, f"meshwright: {error}", as_json)
    except UsageError as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "meshwright"
        return _error(2, f"{path}: {error.format_message()}\nTry: {path} --help", as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _error(130, "meshwright: interrupted", as_json)
    except BrokenPipeError:
        _silence()
        return 0
    except OSError as error:
        try:
            code = _error(2, _os_error(error), as_json)
            sys.stdout.flush()
        except OSError:
            code = 2
            _silence()
        return code
    except Exception as error:
        traceback.print_exc()
        return _error(3, f"meshwright: this is a defect of meshwright: {type(error).__name__}: {error}", as_json)
