"""Jobs for a pool: what a rank sends in a step, and what gradients it has after one."""

from collections import Counter

import numpy as np
import torch

from meshwright.files.plan import Plan
from meshwright.trainer.engine import Engine

from .holding import tokens_of


def sent(plan: Plan) -> tuple[Counter[str], int]:
    """How often each collective was used in the second step, by name; and how many gradient buckets there are."""
    engine = Engine(plan, torch.device("cpu"))
    engine.step(0, tokens_of(plan))
    engine.recorder.on = True
    engine.step(1, tokens_of(plan))
    timeline = engine.recorder.timeline("measured", 1.0)
    names = [timeline.names[name] for name in timeline.name[timeline.sequence >= 0]]
    return Counter(names), len(engine.parts.replicas.buckets.buckets)  # type: ignore[attr-defined]


def gradients(plan: Plan, part: str) -> dict[str, np.ndarray]:
    """After one step, without clipping, the gradients of parameters with `part` in their name."""
    engine = Engine(plan, torch.device("cpu"))
    engine.step(0, tokens_of(plan))
    return {name: p.grad.numpy() for name, p in engine.parts.owned.items() if part in name and p.grad is not None}
