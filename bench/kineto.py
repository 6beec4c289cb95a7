"""How fast and in how much memory gigabytes of traces are read and diagnosed.

A shared real trace (one A100 rank) is repeated with shifted times, for 8 ranks, to about 1.1 GB in a
temporary folder, and the same once more as gzip. Prints CPU-seconds (workers included), MB/s of text, the largest
resident memory of a process, and the same for a second run from the cache; then a file of 200,000 events, start-up
included. `python bench/kineto.py [--ranks 8] [--megabytes 1100]`.
"""

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SHARED = Path(__file__).resolve().parents[2] / "shared" / "traces"
REAL = SHARED / "hta" / "negative_queue_length_values_check" / "rank0.json.gz"

_DIAGNOSE = """
import pathlib, resource, sys
from meshwright.diagnosis.diagnose import diagnose_paths
found = diagnose_paths([sys.argv[1]], cache=sys.argv[2] == "cache")
mine, workers = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = mine.ru_utime + mine.ru_stime + workers.ru_utime + workers.ru_stime
status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss would count what the caller held
peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(cpu, peak, workers.ru_maxrss / 1024, len(found.ranks), len(found.findings))
"""


def write_ranks(folder: Path, ranks: int, megabytes: int) -> int:
    """Write the repeated trace for each rank; returns the bytes of all files."""
    head, events = gzip.decompress(REAL.read_bytes()).split(b'"traceEvents": [', 1)
    events = events[: events.rindex(b"]")]
    pieces = re.split(rb'("ts": |"correlation": |ProfilerStep#)(\d+)', events)
    numbers = np.array(pieces[2::3], np.int64)
    what = np.array([label[:4] for label in pieces[1::3]])
    further = np.where(what == b'"ts"', int(np.ptp(numbers[what == b'"ts"'])) + 1_000_000, 0)
    further = np.where(what == b'"cor', int(numbers[what == b'"cor'].max()) + 1, further)
    further = np.where(what == b"Prof", 100, further)
    total = 0
    for rank in range(ranks):
        path = folder / f"rank{rank}.json"
        with path.open("wb") as file:
            file.write(re.sub(rb'"rank": \d+', b'"rank": %d' % rank, head) + b'"traceEvents": [')
            again = 0
            while file.tell() < megabytes * 1e6 / ranks:
                pieces[2::3] = [b"%d" % number for number in (numbers + again * further).tolist()]
                file.write((b"," if again else b"") + b"".join(pieces))
                again += 1
            file.write(b"]}")
        total += path.stat().st_size
    return total


def diagnose(folder: Path, cache: str, home: Path) -> tuple[float, list[float]]:
    """Wall seconds, and [CPU-seconds, MiB here, MiB of the largest worker, ranks, findings]."""
    start = time.perf_counter()
    environment = os.environ | {"MESHWRIGHT_CACHE": str(home), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _DIAGNOSE, str(folder), cache], check=True, capture_output=True, text=True,
        env=environment,
    )  # fmt: skip
    return time.perf_counter() - start, [float(value) for value in done.stdout.split()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=1100)
    parser.add_argument(
        "--folder", type=Path, help="write the files here and leave them, instead of a temporary folder"
    )
    chosen = parser.parse_args()
    if not REAL.exists():
        print(f"skipped: there is no {REAL.relative_to(SHARED.parents[1])} beside the project")
        return
    with tempfile.TemporaryDirectory(prefix="meshwright-bench-") as room:
        base = chosen.folder or Path(room)
        plain, packed, small, home = (base / name for name in ("plain", "packed", "small", "cache"))
        for folder in (plain, packed, small):
            folder.mkdir(parents=True, exist_ok=True)
        total = sum(path.stat().st_size for path in plain.iterdir()) or write_ranks(
            plain, chosen.ranks, chosen.megabytes
        )
        for path in plain.iterdir() if not any(packed.iterdir()) else ():
            with path.open("rb") as source, gzip.open(packed / f"{path.name}.gz", "wb", compresslevel=1) as target:
                while block := source.read(1 << 20):
                    target.write(block)
        print(f"{total / 1e9:.2f} GB of JSON for {chosen.ranks} ranks")
        for name, folder, cache in (
            ("plain", plain, "none"), ("gzip", packed, "none"), ("plain, filling the cache", plain, "cache"),
            ("from the cache", plain, "cache"),
        ):  # fmt: skip
            wall, (cpu, here, worker, *_) = diagnose(folder, cache, home)
            print(f"{name}: {cpu:.2f} CPU-s, {wall:.2f} s, {total / 1e6 / cpu:.0f} MB/CPU-s, "
                  f"peak {here:.0f} MiB here, {worker:.0f} MiB in a worker")  # fmt: skip
        write_ranks(small, 1, 47)
        wall, (cpu, here, *_) = diagnose(small, "none", home)
        events = (small / "rank0.json").read_text().count('"ph"')
        print(f"{events:,} events in one file: {cpu:.2f} CPU-s, {wall:.2f} s with start-up, peak {here:.0f} MiB")


if __name__ == "__main__":
    main()
