"""Jobs for a pool: what a rank holds after some steps."""

import numpy as np
import torch

from meshwright.files.plan import Plan
from meshwright.files.run import RankMemory
from meshwright.trainer.engine import Engine
from meshwright.trainer.memory import rank_memory


def tokens_of(plan: Plan) -> np.ndarray:
    """A global batch of random tokens."""
    batch, vocab = plan.batch, plan.setup.proposal.arch.vocab
    return np.random.default_rng(0).integers(0, vocab, (batch.global_batch, batch.seq_len + 1))


def held(plan: Plan) -> tuple[int, RankMemory]:
    """Train two steps; the pipeline rank and the bytes of tensors that this rank keeps between steps."""
    engine = Engine(plan, torch.device("cpu"))
    for step in range(2):
        engine.step(step, tokens_of(plan))
    memory = rank_memory(engine.mesh.rank, engine.parts.parameters, engine.optimizer, None, engine.parts.owned)
    return engine.mesh.pp.rank, memory
