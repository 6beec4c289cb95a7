"""One real rank of a plan that watches its own second step, for the comparison with a traced one.

`traced_ranks.py RANK STORE PLAN`, PLAN a pickled plan; prints the figures of `watched` as JSON.
"""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from meshwright.files.plan import Plan
from meshwright.timeline.columns import Action
from meshwright.trainer.engine import Engine
from meshwright.trainer.memory import held_tensors, rank_memory
from meshwright.trainer.spans import SpanRecorder
from meshwright.trainer.traced import process_groups
from meshwright.trainer.traced_tensors import TracedTensors, WatchingClock


def watched(plan: Plan, rank: int) -> dict[str, object]:
    """Bytes of states, the most after a forward, in a backward and in the optimizer's step, and messages."""
    clock = WatchingClock(SpanRecorder(rank))
    engine = Engine(plan, torch.device("cpu"), clock=clock)
    generator = np.random.default_rng(0)
    samples = generator.integers(0, plan.setup.proposal.arch.vocab, (plan.batch.global_batch, plan.batch.seq_len + 1))
    engine.step(0, samples)
    held = held_tensors(engine.parts.parameters, engine.optimizer, engine.parts.owned)
    with TracedTensors(held, None, process_groups(engine.mesh)) as tensors:
        clock.tensors = tensors
        engine.step(1, samples)
    states = rank_memory(rank, engine.parts.parameters, engine.optimizer, None, engine.parts.owned)
    forwards = [moment for moment in clock.moments if moment.action == Action.FORWARD]
    optimizer = [moment for moment in clock.moments if moment.action == Action.OPTIMIZER]
    return {
        "states": [states.weights, states.gradients, states.optimizer],
        "after_forward": max(moment.after for moment in forwards),
        "backward_peak": max(moment.peak for moment in clock.moments if moment not in optimizer),
        "optimizer_peak": max(moment.peak for moment in optimizer),
        "messages": [
            [*key, count, tensors.messages.size[key]] for key, count in sorted(tensors.messages.count.items())
        ],
    }  # fmt: skip


if __name__ == "__main__":
    plan: Plan = pickle.loads(Path(sys.argv[3]).read_bytes())
    me = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=me, world_size=plan.layout.world)
    found = watched(plan, me)
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(found))
