"""Saved under any layout, resumed under any other, training goes on as if nothing had happened."""

from pathlib import Path

import pytest

from meshwright.files.strict_json import dump
from meshwright.trainer.parity import synthetic_tokens
from meshwright.trainer.pool import Pool

from .plans import TINY, cut, plan, variant

pytest.importorskip("torch", reason="training needs meshwright[train]")

from .resuming import Leg, run

TIED = variant(tied=True, vocab=255)  # 255: no degree divides it
FOUR = cut(TINY, 3, 2, 2, 3)
LAYOUTS = {
    "one process": {},
    "ZeRO-1": {"dp": 4, "zero": 1, "micro_batch": 2},
    "ZeRO-2, tp": {"dp": 2, "tp": 2, "zero": 2, "micro_batch": 2, "sp": True},
    "ZeRO-3, pp": {"dp": 2, "pp": 2, "stages": cut(TINY, 4, 6), "zero": 3, "micro_batch": 2},
    "ZeRO-3 in pairs": {"dp": 4, "zero": 3, "shard_group": 2, "micro_batch": 2},
    "ZeRO-3, tp": {"dp": 2, "tp": 2, "zero": 3, "micro_batch": 2},
    "ZeRO-2 in a V": {"dp": 2, "pp": 2, "vpp": 2, "stages": FOUR, "placement": (0, 1, 1, 0), "schedule": "zbv",
                      "zero": 2, "micro_batch": 2},
    "tp, pp": {"tp": 2, "pp": 2, "stages": cut(TINY, 5, 5)},
}  # fmt: skip


def write_tokens(folder: Path, vocab: int = 255, count: int = 5000) -> Path:
    folder.mkdir()
    synthetic_tokens(vocab, count, seed=0).tofile(folder / "tokens.bin")
    header = {"dtype": "uint32", "count": count, "vocab": vocab, "documents": 1, "text_bytes": 0, "corpus": "synthetic"}
    dump(header, folder / "header.json")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_layout_resumes_what_another_saved(tmp_path: Path, pool: Pool) -> None:
    tokens = write_tokens(tmp_path / "tokens")
    plans = {name: plan(name, arch=TIED, **layout) for name, layout in LAYOUTS.items()}
    straight = run(pool, Leg(plans["one process"], tokens, 0, 5))
    names = list(plans)
    for name in names:
        run(pool, Leg(plans[name], tokens, 0, 3, target=tmp_path / name))
    onward = [*zip(names, names[1:] + names[:1], strict=True), *((name, "one process") for name in names[1:])]
    for before, after in onward:
        resumed = run(pool, Leg(plans[after], tokens, 3, 5, origin=tmp_path / before))
        for ours, theirs in zip(resumed, straight[3:], strict=True):
            assert ours.loss == pytest.approx(theirs.loss, rel=2e-6), (before, after)
            assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=2e-5), (before, after)
            assert ours.lr == theirs.lr
