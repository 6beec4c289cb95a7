"""Jobs for a pool: train some steps, from a checkpoint and into one."""

from dataclasses import dataclass
from pathlib import Path

import torch

from meshwright.files.plan import Plan
from meshwright.trainer.checkpoint import load_latest, save
from meshwright.trainer.data import open_tokens
from meshwright.trainer.data_sampler import samples
from meshwright.trainer.engine import Engine, StepOutcome
from meshwright.trainer.pool import Job, Pool
from meshwright.trainer.worker import resume, state_of


@dataclass(frozen=True)
class Leg:
    """Steps `first` to `last` of a plan; `origin` and `target` are folders of checkpoints."""

    plan: Plan
    tokens: Path
    first: int
    last: int
    origin: Path | None = None
    target: Path | None = None


def travel(leg: Leg) -> list[StepOutcome]:
    """Train one leg in the default process group."""
    engine = Engine(leg.plan, torch.device("cpu"))
    state = state_of(engine)
    if leg.origin is not None:
        assert load_latest(state, leg.origin) == leg.first
        resume(engine, state)
    batch, training = leg.plan.batch, engine.training
    tokens = open_tokens(leg.tokens)
    outcomes = [
        engine.step(step, samples(tokens, step, batch.global_batch, batch.seq_len, training.seed))
        for step in range(leg.first, leg.last)
    ]
    if leg.target is not None:
        save(leg.last, state_of(engine), leg.target)
    return outcomes


def run(pool: Pool, leg: Leg) -> list[StepOutcome]:
    """The outcomes of a leg on rank 0."""
    outcomes: list[StepOutcome] = pool.run(Job(f"{__name__}:travel", (leg,), leg.plan.layout.world, 30.0))[0]
    return outcomes
