"""Write the pages whose every output is real: the verbs run, and what they print is pasted into the templates.

    python docs/generate.py                write every page
    python docs/generate.py --check        exit 1 and name the pages that are not what the verbs print today; without
                                           docs/accuracy.md, which predicts 1,800 rows
    python docs/generate.py --check-all    the same with docs/accuracy.md

A template is Markdown with three additions. A fenced block of kind `meshwright` holds one command line (without the
program's name) and becomes the command with its output. After the kind may stand

    exit=N        the exit code that is expected (default 0)
    only=a,b      of `check`: only the blocks of these rules; `instead` is its table of neighbours
    until=TEXT    stop before the line that starts with TEXT, where `_` is a space

A fenced block of kind `table` holds the name of a table of `accuracy_tables.py` and, on the next line, the command line
whose --json it is made from. `{{ command | path | format }}` becomes one figure of the command's --json; in the path,
`kind=plain` filters a list, and a key of a list is its least value.

Only commands whose answer does not depend on this machine belong here; the time that a search took is blanked.
"""

import difflib
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from accuracy_tables import TABLES

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("worked-example", "common-mistakes")
SLOW = ("accuracy",)  # pages whose commands take long
CUT = "[...]"

_BLOCK = re.compile(r"^```meshwright(?P<options>[^\n]*)\n(?P<command>[^\n]+)\n```$", re.MULTILINE)
_FIGURE = re.compile(r"\{\{(?P<command>[^|{}]+)\|(?P<path>[^|{}]+)\|(?P<format>[^|{}]+)\}\}")
_TABLE = re.compile(r"^```table\n(?P<name>\w+)\n(?P<command>[^\n]+)\n```$", re.MULTILINE)
_SEARCH_TIME = re.compile(r"(layouts in )[\d.]+ (?:µs|ms|s|min)")


class DocumentError(Exception):
    """A command of a template does not do what the template says."""


@cache
def run(command: str) -> tuple[int, str]:
    """Exit code and standard output of one command line, run from the repository's root in 96 columns, no colour."""
    place = {"COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    ended = subprocess.run(
        [sys.executable, "-m", "meshwright", *shlex.split(command)], cwd=ROOT, capture_output=True, text=True,
        encoding="utf-8", env={**os.environ, **place, "PYTHONPATH": source}, timeout=120, check=False,
    )  # fmt: skip
    if ended.returncode not in (0, 1):
        raise DocumentError(f"meshwright {command}: exit {ended.returncode}\n{ended.stderr}")
    lines = [line.rstrip() for line in (ended.stdout or ended.stderr).splitlines()]
    return ended.returncode, _SEARCH_TIME.sub(r"\1… s", "\n".join(lines))


def blocks_of_rules(output: str, rules: list[str]) -> str:
    """Of the output of `check` only the blocks about these rules, and its verdict. Raises DocumentError for a rule
    that is not there."""
    parts: list[list[str]] = []
    for line in output.splitlines():
        if not parts or line.startswith(("error ", "warning ")) or _ends_block(line, parts[-1]):
            parts.append([])
        parts[-1].append(line)
    kept, missing = [], set(rules)
    for part in parts:
        found = [rule for rule in rules if f"[{rule}]" in " ".join(part[:2]) or part[0].startswith(f"{rule} (")]
        missing -= set(found)
        kept.append(part if found else [CUT])
    if missing:
        raise DocumentError(f"check says nothing of {', '.join(sorted(missing))}")
    lines = [line for part in kept for line in part]
    joined = [line for index, line in enumerate(lines) if line != CUT or lines[index - 1 : index] != [CUT]]
    verdict = output.splitlines()[-1]
    return "\n".join([*joined, *([verdict] if joined[-1] == CUT else [])])


def _ends_block(line: str, block: list[str]) -> bool:
    """A line at the left margin that does not continue a block's first line."""
    wraps = block[-1].startswith(("error ", "warning ")) and not block[-1].endswith("]")
    return not line.startswith(" ") and not wraps and block[0].startswith(("error ", "warning "))


def _pasted(match: re.Match[str]) -> str:
    command = match["command"].strip()
    options = dict(option.partition("=")[::2] for option in match["options"].split())
    code, output = run(command)
    if code != int(options.get("exit", "0")):
        raise DocumentError(f"meshwright {command}: exit {code}\n{output}")
    if "only" in options:
        output = blocks_of_rules(output, options["only"].split(","))
    if "until" in options:
        start = options["until"].replace("_", " ")
        lines = output.splitlines()
        end = next((number for number, line in enumerate(lines) if line.startswith(start)), None)
        if end is None:
            raise DocumentError(f"meshwright {command}: no line starts with {start!r}")
        output = "\n".join([*lines[:end], CUT])
    return f"```console\n$ meshwright {command}\n{output}\n```"


def _entry(value: Any, key: str) -> Any:
    if not isinstance(value, list):
        return value[key]
    if key.isdigit():
        return value[int(key)]
    name, equals, wanted = key.partition("=")
    return [entry for entry in value if entry[name] == wanted] if equals else min(entry[key] for entry in value)


def _figure(match: re.Match[str]) -> str:
    value: Any = json.loads(run(match["command"].strip() + " --json")[1])
    for key in match["path"].strip().split("."):
        value = _entry(value, key)
    return format(value, match["format"].strip()).replace("%", " %")


def _made_table(match: re.Match[str]) -> str:
    if match["name"] not in TABLES:
        raise DocumentError(f"no table {match['name']!r}: there are {', '.join(TABLES)}")
    return TABLES[match["name"]](json.loads(run(match["command"].strip() + " --json")[1]))


def page(name: str) -> str:
    """One page, made from its template. Raises DocumentError."""
    template = (ROOT / "docs" / "templates" / f"{name}.md").read_text(encoding="utf-8")
    made = f"<!-- Made from docs/templates/{name}.md by `make docs`: edit that. -->\n\n"
    return made + _FIGURE.sub(_figure, _TABLE.sub(_made_table, _BLOCK.sub(_pasted, template)))


def schemas() -> str:
    """The schema of every verb's JSON."""
    made = subprocess.run(
        [sys.executable, "-m", "meshwright.files.document"], cwd=ROOT, capture_output=True, text=True, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}, check=True,
    )  # fmt: skip
    return made.stdout


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them with what the verbs print today."""
    if arguments not in ([], ["--check"], ["--check-all"]):
        print(__doc__, file=sys.stderr)
        return 2
    pages = PAGES if arguments == ["--check"] else (*PAGES, *SLOW)
    made = {f"{name}.md": page(name) for name in pages} | {"schemas.md": schemas()}
    stale = []
    for name, text in made.items():
        path = ROOT / "docs" / name
        now = path.read_text(encoding="utf-8") if path.exists() else ""
        if arguments and now != text:
            stale.append(name)
            sys.stderr.writelines(difflib.unified_diff(now.splitlines(True), text.splitlines(True), name, "now", n=0))
        elif not arguments:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"not current: {', '.join(stale)}; `make docs` writes them anew", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
