"""One rank of a parity comparison: trains one case, and compares its whole parameters with the reference's."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from meshwright.trainer.courses import GLOBAL, OWN, Case, Course
from meshwright.trainer.data import open_tokens
from meshwright.trainer.data_sampler import Sampler, reading_of
from meshwright.trainer.engine import Engine
from meshwright.trainer.replicas import drifted, weight_norm
from meshwright.trainer.wholes import Arrays, differences, gradients_of, keep, small, unequal, wholes

BEFORE, GRADIENTS, AFTER = "before", "gradients", "after"
# A gradient with less of the global norm is zero but for rounding (that of a key's bias, which shifts all scores alike,
# is), and AdamW, which divides it by itself, makes steps of it that no two orders of summation agree on.
ROUNDING = 1e-6


def train_case(case: Case) -> Course:
    """Train a case in the default process group; comparisons with a reference are rank 0's. Collective."""
    engine, plan = Engine(case.plan, torch.device("cpu")), case.plan
    sampler, before = Sampler(open_tokens(case.tokens), reading_of(plan)), weight_norm(engine)
    looked = case.keep is not None or case.beside is not None
    found: dict[str, Arrays | None] = {}
    if looked:
        found[BEFORE] = wholes(engine, engine.parts.owned)
    outcomes = []
    for step in range(case.steps):
        batch = sampler.batch(step)
        rows = ragged(batch.samples, step) if case.ragged and batch.tokens is None else batch.samples
        outcomes.append(engine.step(step, rows, batch.positions))
        if looked and step == 0:
            found[GRADIENTS] = wholes(engine, gradients_of(engine))
    if looked:
        found[AFTER] = wholes(engine, engine.parts.owned)
    compared = _compared(found, case.keep, case.beside)
    return Course(
        tuple(outcome.loss for outcome in outcomes), tuple(outcome.grad_norm for outcome in outcomes), before,
        weight_norm(engine), drifted(engine), *compared,
    )  # fmt: skip


def ragged(rows: NDArray[np.int64], step: int) -> NDArray[np.int64]:
    """Samples [n, S + 1] of which each is trained on up to a place of its own, at least half of it: a mean over ranks
    or micro-batches that hold unequal numbers of trained tokens is not the mean over tokens."""
    length = rows.shape[1]
    ends = length - np.random.default_rng(step).integers(0, max(1, length // 2), len(rows))
    return np.where(np.arange(length) < ends[:, None], rows, -1)


def _compared(found: dict[str, Arrays | None], kept: Path | None, beside: Path | None):  # type: ignore[no-untyped-def]
    """The fields `initial`, `gradients` and `weights` of a course."""
    arrays = {what: value for what, value in found.items() if value is not None}
    if kept is not None:
        for what, value in arrays.items():
            keep(value, kept / what)
    if beside is None or not arrays:
        return ()
    return (
        unequal(arrays[BEFORE], beside / BEFORE),
        differences(arrays[GRADIENTS], beside / GRADIENTS, GLOBAL / OWN)[:3],
        differences(arrays[AFTER], beside / AFTER, without=small(beside / GRADIENTS, ROUNDING))[:3],
    )
