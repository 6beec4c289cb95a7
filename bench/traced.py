"""How long it takes to trace stages of Llama 3 70B, and what it says ("traced, CPU kernels").

Run: python bench/traced.py [pipeline ranks, default 0 1 3]. Layout: pp 4, dp 4, tp 8 with sequence parallelism, 1F1B,
micro-batches of one sample of 4096 tokens, bf16 under autocast with fp32 weights. Each line: pipeline rank, its
micro-batches alive, seconds of wall and of this thread's CPU, GiB of states, activations, logits, peaks in backward
and in the optimizer step. Last: this process's largest resident size.
"""

import resource
import sys
import time
from itertools import pairwise

from meshwright.basics.figures import Constant
from meshwright.basics.quantities import GIB, KIB, MIB
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.model.units import units_of
from meshwright.trainer.traced import traced

LLAMA_3_70B = Architecture(
    name="llama-3-70b", family="llama", layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128, ffn_hidden=28672,
    vocab=128256,
)  # fmt: skip


def llama_plan() -> Plan:
    """Four stages of 20 layers."""
    names = [unit.name for unit in units_of(LLAMA_3_70B)]
    cuts = (0, 41, 81, 121, len(names))
    stages = tuple(tuple(names[a:b]) for a, b in pairwise(cuts))
    layout = Layout(stages=stages, placement=(0, 1, 2, 3), pp=4, dp=4, tp=8, sp=True)
    nothing = Constant(0.0, "guessed")
    device, link = Device("any", "cpu", 2**37, {}, nothing, nothing, nothing), Link("any", nothing, nothing)
    cluster = Cluster(device, layout.world, 8, link, link, 2**37)
    batch = Batch(4 * 32, 1, 32, 4096)
    proposal = Proposal(LLAMA_3_70B, cluster, Training(precision="bf16"), batch.global_batch, batch.seq_len, Wanted())
    return Plan(Setup("llama-3-70b", proposal), layout, batch)


def main() -> None:
    plan = llama_plan()
    for rank in [int(word) for word in sys.argv[1:]] or [0, 1, 3]:
        cpu = time.thread_time()
        found = traced(plan, rank)
        sizes = (found.states, found.activations, found.logits, found.backward_peak, found.optimizer_peak)
        spent = f"{found.seconds:.1f} s wall  {time.thread_time() - cpu:.1f} s CPU"
        print(
            f"rank {rank}  {found.in_flight} alive  {spent}  GiB " + "  ".join(f"{size / GIB:6.2f}" for size in sizes)
        )
    print(f"resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
