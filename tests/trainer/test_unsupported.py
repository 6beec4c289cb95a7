"""What the trainer refuses is said before anything starts, and is what the table of runners says."""

import subprocess
import sys

import pytest

from meshwright.layout.runners import refusals
from meshwright.trainer.unsupported import unsupported

from .plans import TINY, cut, plan, variant

HALVES = cut(TINY, 4, 6)
RUNS = [
    plan(), plan(dp=2, tp=2, sp=True), plan(stages=HALVES, pp=2, schedule="gpipe", recompute="full"),
    plan(stages=cut(TINY, 3, 2, 2, 3), placement=(0, 1, 1, 0), pp=2, vpp=2, schedule="zbv"),
    plan(stages=cut(TINY, 3, 2, 2, 3), placement=(0, 1, 1, 0), pp=2, vpp=2, recompute="full", recompute_layers=1),
    plan(arch=variant(tied=True), stages=HALVES, pp=2), plan(training={"precision": "bf16", "optimizer": "sgd"}),
    plan(arch=variant(family="qwen3", qk_norm=True)),
    plan(training={"precision": "fp16"}), plan(recompute="selective"), plan(dp=2, zero=1),
    plan(dp=2, tp=2, zero=2, gradient_exchange="step"), plan(dp=4, zero=3, shard_group=2),
    plan(stages=HALVES, pp=2, dp=2, zero=3, schedule="zb-h1"),
]  # fmt: skip
REFUSED = {
    "layout.cp": plan(cp=2),
    "layout.gradient_exchange": plan(dp=2, zero=1, gradient_exchange="micro-batch"),
    "layout.offload": plan(offload="optimizer"),
    "layout.loss_chunk": plan(loss_chunk=16),
    "layout.vocab_parallel": plan(tp=2, vocab_parallel=False),
    "layout.vocab_multiple": plan(vocab_multiple=100),
    "training.precision": plan(training={"precision": "fp8"}),
    "training.optimizer": plan(training={"optimizer": "muon"}),
    "training.gradient_dtype": plan(training={"gradient_dtype": "bf16"}),
    "training.task": plan(training={"task": "lora"}),
    "model.family": plan(arch=variant(family="falcon")),
    "model.experts": plan(arch=variant(experts=4, active_experts=2)),
    "model.gated": plan(arch=variant(gated=False)),
    "model.norm": plan(arch=variant(norm="layer")),
    "model.positions": plan(arch=variant(positions="learned")),
    "model.chunked": plan(arch=variant(sliding_window=8, chunked=True)),
}


@pytest.mark.parametrize("given", RUNS)
def test_runs(given) -> None:
    assert unsupported(given) == ()
    assert refusals(given.setup.proposal.arch, given.setup.proposal.training, given.layout)["meshwright"] == ()


@pytest.mark.parametrize("field", REFUSED)
def test_refuses(field: str) -> None:
    given = REFUSED[field]
    assert field in {complaint.field for complaint in unsupported(given)}
    assert refusals(given.setup.proposal.arch, given.setup.proposal.training, given.layout)["meshwright"]


def test_refuses_heads_that_do_not_divide() -> None:
    assert "2 kv heads" in str(unsupported(plan(tp=4))[0])


def test_refusing_and_comparing_need_no_torch() -> None:
    code = "import sys, meshwright.trainer.unsupported, meshwright.trainer.parity; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
