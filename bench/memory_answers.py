"""Seconds that the answers of `memory` take for a plan of 16 stages: advice, a failed request explained, what fits.

Run: PYTHONPATH=src python bench/memory_answers.py
"""

import sys
import time
from collections.abc import Callable

from meshwright.files.job import parse_job
from meshwright.files.plan_toml import plan_of
from meshwright.planner.fit import largest
from meshwright.planner.oom import explain
from meshwright.planner.oom_request import parse_request
from meshwright.planner.relief import reliefs

LIMIT_S = 1.0
STAGES, LAYERS = 16, 80


def job(memory_gib: int) -> str:
    """A 70B model on 128 GPUs; with 80 GiB single changes help, with 30 GiB only pairs do."""
    each = LAYERS // STAGES
    stages = [[f"layers.{s * each}-{(s + 1) * each - 1}"] for s in range(STAGES)]
    stages[0].insert(0, "embed")
    stages[-1].append("head")
    return f"""
[model]
layers = {LAYERS}
hidden = 8192
heads = 64
kv_heads = 8
ffn_hidden = 28672
vocab = 128256
[cluster]
gpu = "H100-80GB-SXM"
gpus = 128
inter_node = "ib-ndr"
memory_gib = {memory_gib}
[batch]
global = 256
seq_len = 8192
micro_batch = 1
[layout]
dp = 4
tp = 2
pp = {STAGES}
zero = 1
sp = true
schedule = "1f1b"
stages = {stages}
[search]
runnable_by = "megatron"
"""


def main() -> int:
    """Print a line an answer; 1 when one takes longer than it should."""
    slow = False
    for memory_gib in (80, 30):
        plan = plan_of(parse_job(job(memory_gib)))
        answers: dict[str, Callable[[], object]] = {
            "advice": lambda plan=plan: reliefs(plan),  # type: ignore[misc]
            "--oom": lambda plan=plan: explain(plan, parse_request("1.96 GiB")),  # type: ignore[misc]
            "--fit": lambda plan=plan: largest(plan),  # type: ignore[misc]
        }
        for name, answer in answers.items():
            start = time.perf_counter()
            answer()
            seconds = time.perf_counter() - start
            slow |= seconds > LIMIT_S
            print(f"{name:8} {memory_gib} GiB a device  {seconds:.3f} s")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
