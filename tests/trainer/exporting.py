"""Jobs for a pool: start from a folder of weights, train some steps, leave a folder of weights."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from meshwright.files.plan import Plan
from meshwright.trainer.engine import Engine
from meshwright.trainer.export import export
from meshwright.trainer.pool import Job, Pool
from meshwright.trainer.weights import Weights


@dataclass(frozen=True)
class Trip:
    """Steps of a plan from the weights in `source` (None: random ones) to a folder `target`."""

    plan: Plan
    source: Path | None
    target: Path
    steps: int = 0
    file_bytes: int = 2**30


def travel(trip: Trip) -> list[float]:
    """The losses of one trip in the default process group."""
    proposal, batch = trip.plan.setup.proposal, trip.plan.batch
    weights = None if trip.source is None else Weights(trip.source, proposal.arch)
    engine = Engine(trip.plan, torch.device("cpu"), weights=weights)
    rng = np.random.default_rng(0)
    samples = rng.integers(0, proposal.arch.vocab, (batch.global_batch, batch.seq_len + 1))
    losses = [engine.step(step, samples).loss for step in range(trip.steps)]
    export(engine, trip.target, trip.file_bytes)
    return losses


def run(pool: Pool, trip: Trip) -> list[float]:
    """The losses of a trip on rank 0."""
    losses: list[float] = pool.run(Job(f"{__name__}:travel", (trip,), trip.plan.layout.world, 30.0))[0]
    return losses


def logits(path: Path, vocab: int) -> torch.Tensor:
    """What transformers' own model with the folder's weights says to some tokens."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    tokens = torch.randint(0, vocab, (2, 24), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=tokens).logits
    return found
