"""How long planning takes, from a small job to a hundred thousand devices.

Run: OMP_NUM_THREADS=1 python bench/plan_speed.py [PART OF A NAME ...] [--profile] [--repeat N]
Each job is planned in a process of its own. Wall time on a busy machine says little: processor time is printed, the
least of N repeats, beside the layouts compared, layouts a second and the peak memory of the process. The worked example
is also timed as a user meets it: `meshwright plan`, start of the interpreter included.
"""

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.cluster import catalogue
from meshwright.cluster.topology import Cluster
from meshwright.files.setup import Setup
from meshwright.layout.degrees import describe
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.catalogue import named
from meshwright.model.propose import from_count
from meshwright.model.training import Precision, Training
from meshwright.planner.rank import plan

EXAMPLE = Path(__file__).parents[1] / "examples/worked-example/job.toml"


def job(arch: Architecture, gpu: str, gpus: int, batch: int, seq_len: int, precision: Precision = "bf16") -> Setup:
    """A job on catalogue devices that any framework may run."""
    device = catalogue.device(gpu)
    links = catalogue.link(device.nvlink or "pcie4"), catalogue.link("ib-hdr")
    cluster = Cluster(device, gpus, 8, *links, device.memory_bytes)
    proposal = Proposal(arch, cluster, Training(precision=precision), batch, seq_len, Wanted())
    return Setup("bench", proposal, runnable_by="any")


@dataclass(frozen=True)
class Case:
    """A job, and the processor seconds that planning it should take at most."""

    make: Callable[[], Setup]
    limit_s: float


CASES: Mapping[str, Case] = {
    "1.2 B on 8 A100": Case(lambda: job(from_count(1_200_000_000), "A100-40GB-SXM", 8, 256, 2048, "fp16"), 0.2),
    "Llama-3 70B on 512 H100": Case(lambda: job(named("llama-3-70b"), "H100-SXM", 512, 2048, 8192), 1.0),
    "GPT-3 175B on 1,024 A100": Case(lambda: job(named("gpt-3-175b"), "A100-80GB-SXM", 1024, 1536, 2048), 2.0),
    "Llama-3 405B on 16,384 H100": Case(lambda: job(named("llama-3.1-405b"), "H100-SXM", 16384, 2048, 8192), 4.0),
    "DeepSeek-V3 on 256 H800": Case(lambda: job(named("deepseek-v3"), "H800-SXM", 256, 1920, 4096), 4.0),
    "DeepSeek-V3 on 2,048 H800": Case(lambda: job(named("deepseek-v3"), "H800-SXM", 2048, 15360, 4096), 4.0),
    "Llama-3 405B on 100,000 H100": Case(lambda: job(named("llama-3.1-405b"), "H100-SXM", 100_000, 20_000, 8192), 10.0),
}


def one(name: str, repeat: int, profile: bool) -> dict[str, object]:
    """Plan a case in this process."""
    setup, seconds = CASES[name].make(), []
    plan(job(from_count(50_000_000), "A100-40GB-SXM", 2, 4, 128))  # imports are not the question
    profiler = cProfile.Profile()
    for _ in range(1 if profile else repeat):
        start = time.process_time()
        if profile:
            profiler.enable()
        found = plan(setup)
        profiler.disable()
        seconds.append(time.process_time() - start)
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    best = found.plans[0]
    assert best.prediction is not None
    return {
        "cpu_s": min(seconds), "layouts": found.evaluated, "first": describe(best.layout),
        "micro_batch": best.batch.micro_batch, "micro_batches": best.batch.micro_batches,
        "step_s": best.prediction.step_time_s,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def worked_example(repeat: int) -> float:
    """Processor seconds of `meshwright plan` on the worked example, all of the process."""
    least = float("inf")
    for _ in range(repeat):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "meshwright", "plan", str(EXAMPLE)], check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def main() -> int:
    """Print a line a job; 1 when one takes longer than it should, or more than 500 MiB."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.repeat, options.profile)))
        return 0
    late = 0
    print(f"{'job':30} {'layouts':>9} {'cpu s':>7} {'limit':>6} {'layouts/s':>10} {'MiB':>5}  first")
    for name, case in CASES.items():
        if options.names and not any(part in name for part in options.names):
            continue
        rest = ["--profile"] if options.profile else []
        command = [sys.executable, __file__, "--one", name, "--repeat", str(options.repeat), *rest]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        cpu, layouts, mib = answer["cpu_s"], answer["layouts"], answer["peak_mib"]
        print(
            f"{name:30} {layouts:9,} {cpu:7.2f} {case.limit_s:6} {layouts / cpu:10,.0f} {mib:5.0f}  {answer['first']}, "
            f"{answer['micro_batch']} x {answer['micro_batches']}: {answer['step_s']:.4g} s"
        )
        late += cpu > case.limit_s or mib > 500
    if not options.names:
        cpu = worked_example(options.repeat)
        print(f"meshwright plan {EXAMPLE.name}: {cpu:.2f} s processor with the start of the interpreter, limit 0.3")
        late += cpu > 0.3
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
