"""How long the command line takes to start, beside an interpreter that does nothing: processor seconds and ratios.

    python bench/start_up.py

Each command runs several times and the least counts, so that other work on the machine matters little. Aims on a
machine left alone: import 0.15 s, help 0.25 s, check and plan of the worked example 0.5 s.
"""

import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples/worked-example"
COMMANDS = {
    "an empty interpreter": ("-c", "pass"),
    "import meshwright": ("-c", "import meshwright"),
    "import numpy, pydantic": ("-c", "import numpy, pydantic"),
    "meshwright --help": ("-m", "meshwright", "--help"),
    "meshwright check": ("-m", "meshwright", "check", str(EXAMPLE / "as-written.toml")),
    "meshwright plan": ("-m", "meshwright", "plan", str(EXAMPLE / "job.toml")),
}


def seconds(arguments: tuple[str, ...]) -> float:
    """Processor seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, timeout=60, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(repeats: int = 7) -> None:
    """Print the table."""
    least = {name: min(seconds(arguments) for _ in range(repeats)) for name, arguments in COMMANDS.items()}
    empty = least["an empty interpreter"]
    for name, taken in least.items():
        print(f"{name:26} {taken:6.3f} s   {taken / empty:5.1f} x an empty interpreter")


if __name__ == "__main__":
    main()
