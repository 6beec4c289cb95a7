"""How long planning takes: the worked example, and a large model on many devices.

Run: PYTHONPATH=src python bench/plan_speed.py [--profile]
Wall time on a busy machine says little; processor time is printed beside it.
"""

import cProfile
import pstats
import sys
import time
from collections.abc import Iterator

from meshwright.cluster import catalogue
from meshwright.cluster.topology import Cluster
from meshwright.files.setup import Setup
from meshwright.layout.degrees import describe
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.propose import from_count
from meshwright.model.training import Precision, Training
from meshwright.planner.rank import plan


def job(arch: Architecture, gpu: str, gpus: int, batch: int, seq_len: int, precision: Precision = "bf16") -> Setup:
    """A job on catalogue devices that any framework may run."""
    device = catalogue.device(gpu)
    links = catalogue.link(device.nvlink or "pcie4"), catalogue.link("ib-hdr")
    cluster = Cluster(device, gpus, 8, *links, device.memory_bytes)
    proposal = Proposal(arch, cluster, Training(precision=precision), batch, seq_len, Wanted())
    return Setup("bench", proposal, runnable_by="any")


def jobs() -> Iterator[tuple[str, Setup, float]]:
    """(what, job, processor seconds it should take at most)."""
    small = from_count(1_200_000_000)
    large = Architecture("llama-3-70b", "llama", 80, 8192, 64, 8, 128, 28672, 128256)
    yield "1.2 B on 8 x A100-40GB", job(small, "A100-40GB-SXM", 8, 256, 2048, "fp16"), 0.2
    yield "70 B on 512 x H100", job(large, "H100-SXM", 512, 2048, 8192), 3.0


def main() -> int:
    """Print a line a job; 1 when one takes longer than it should."""
    late = 0
    for what, setup, limit in jobs():
        plan(job(from_count(50_000_000), "A100-40GB-SXM", 2, 4, 128))  # imports and tables are not the question
        profiler = cProfile.Profile()
        wall, cpu = time.perf_counter(), time.process_time()
        if "--profile" in sys.argv:
            profiler.enable()
        found = plan(setup)
        profiler.disable()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        best = found.plans[0]
        print(f"{what}: {found.evaluated} layouts, {cpu:.2f} s processor ({wall:.2f} s wall), limit {limit} s")
        print(f"  first: {describe(best.layout)}, micro-batch {best.batch.micro_batch} x {best.batch.micro_batches}")
        if "--profile" in sys.argv:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(15)
        late += cpu > limit
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
