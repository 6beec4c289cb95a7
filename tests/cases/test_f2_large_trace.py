"""F2: a trace too big to open is streamed: bounded memory, only what is needed kept, a cut-off end survived."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.diagnosis.diagnose import diagnose_paths
from meshwright.traces.kineto import read_kineto

_PEAK = """
import gc, pathlib, sys
gc.disable()
from meshwright.traces.kineto_part import read_part
status = pathlib.Path("/proc/self/status")
peak = lambda: int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
before = peak()
part = read_part(pathlib.Path(sys.argv[1]))
print(before, peak(), part.seen, len(part.rows))
"""


def write(path: Path, steps: int, fillers: int) -> Path:
    """A rank whose kernels are few and whose Python frames, which nobody needs, are many."""
    with path.open("w") as file:
        file.write('{"distributedInfo": {"rank": 0, "world_size": 1, "backend": "nccl"}, "traceEvents": [\n')
        rows = []
        for step in range(steps):
            at = 1000.0 * step
            for k in range(fillers):
                rows.append({"ph": "X", "cat": "python_function", "name": f"model.py({k}): forward", "pid": 1, "tid": 1,
                             "ts": at + k, "dur": 1, "args": {"Python id": k, "Python module id": 3}})  # fmt: skip
            for k in range(9):
                rows.append({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 100 * k,
                             "dur": 90.5, "args": {"stream": 7, "correlation": 9 * step + k}})  # fmt: skip
            rows.append({"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{step}", "pid": 0, "tid": 7,
                         "ts": at, "dur": 900, "args": {}})  # fmt: skip
            file.write(",\n".join(map(json.dumps, rows)) + (",\n" if step < steps - 1 else "\n"))
            rows.clear()
        file.write("]}")
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_f2_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", steps=60, fillers=5000)
    assert path.stat().st_size > 40e6
    done = subprocess.run([sys.executable, "-c", _PEAK, str(path)], capture_output=True, text=True, check=True)
    before, peak, seen, kept = (float(value) for value in done.stdout.split())
    assert seen == 60 * 5010
    assert kept == 60 * 9
    assert peak - before < 60  # MiB; the file alone has more than 40, its events as objects several hundred


def test_f2_a_large_trace_and_a_truncated_copy_say_what_the_small_one_says(tmp_path: Path) -> None:
    small = diagnose_paths([write(tmp_path / "small.json", steps=3, fillers=0)])
    large = write(tmp_path / "large.json", steps=12, fillers=2500)
    whole = diagnose_paths([large])
    for split in (small.ranks[0], whole.ranks[0]):
        assert split.compute_s == pytest.approx(9 * 90.5e-6)
        assert split.window_s == pytest.approx(890.5e-6)
    text = large.read_bytes()
    large.write_bytes(text[: int(0.9 * len(text))])
    traces = read_kineto([large])
    assert any("cut off" in note and f"{traces.events} whole events" in note for note in traces.notes)
    assert diagnose_paths([large]).ranks[0].compute_s == pytest.approx(9 * 90.5e-6)
