"""The trainer's step traced without memory or peers: equal to the predictor's states, and to what real ranks hold."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright.basics.errors import InputError
from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture
from meshwright.predictor.memory import rank_memory

from .plans import TINY, cut, plan

torch = pytest.importorskip("torch", reason="training needs meshwright[train]")

from meshwright.trainer.traced import traced  # noqa: E402

SMALL = replace(TINY, vocab=1000, heads=8, kv_heads=4, head_dim=8)
FAMILIES = {
    "llama": SMALL, "qwen2": replace(SMALL, family="qwen2", qkv_bias=True), "mistral": replace(SMALL, family="mistral"),
    "qwen3": replace(SMALL, family="qwen3", qk_norm=True), "tied": replace(SMALL, tied=True),
}  # fmt: skip
INSIDE_A_LAYER = (2, 3, 2, 3)
LAYOUTS: dict[str, dict[str, Any]] = {
    "1": {}, "tp2": {"tp": 2, "sp": True}, "tp4": {"tp": 4}, "pp2": {"pp": 2, "cuts": (4, 6)},
    "pp4": {"pp": 4, "cuts": INSIDE_A_LAYER}, "2x2x2": {"pp": 2, "tp": 2, "dp": 2, "cuts": (5, 5)},
    "zero1": {"dp": 4, "zero": 1}, "zero2": {"dp": 4, "zero": 2}, "zero3": {"dp": 4, "zero": 3},
    "hsdp": {"dp": 4, "zero": 3, "shard_group": 2}, "zero1 pp2": {"dp": 2, "zero": 1, "pp": 2, "cuts": (5, 5)},
    "zero3 pp2": {"dp": 2, "zero": 3, "pp": 2, "cuts": (4, 6)}, "zero3 tp2": {"dp": 2, "zero": 3, "tp": 2},
}  # fmt: skip
GRID = [("llama", layout) for layout in LAYOUTS] + [
    (family, layout) for family in FAMILIES if family != "llama" for layout in ("tp2", "pp4", "zero3 pp2", "2x2x2")
]


def small(arch: Architecture, micro_batches: int = 4, **layout: Any) -> Plan:
    cuts = layout.pop("cuts", None)
    stages = cut(arch, *cuts) if cuts else None
    rows = micro_batches * layout.get("dp", 1)
    return plan(arch=arch, stages=stages, micro_batch=1, global_batch=rows, seq_len=64, **layout)


@pytest.mark.parametrize(("family", "layout"), GRID)
def test_traced_states_equal_the_predicted_ones_to_the_byte(family: str, layout: str) -> None:
    given = small(FAMILIES[family], **LAYOUTS[layout])
    for rank, predicted in enumerate(rank_memory(given.setup, given.layout, given.batch)):
        found, parts = traced(given, rank), predicted.parts
        assert (found.parameters, found.gradients) == (parts["weights"], parts["gradients"])
        # AdamW counts its steps in 4 bytes a tensor, which no recipe of bytes a parameter holds.
        assert found.optimizer - 4 * found.tensors == parts["optimizer"] + parts.get("master", 0)
        assert found.stages == predicted.stages
        assert found.in_flight == predicted.in_flight


def test_a_trace_leaves_no_process_group_behind() -> None:
    traced(small(SMALL, dp=2), 0)
    assert not torch.distributed.is_initialized()
    with pytest.raises(InputError, match="the trainer has no context parallelism"):
        traced(small(SMALL, cp=2), 0)
    assert not torch.distributed.is_initialized()


def test_bytes_do_not_depend_on_the_replicas_when_nothing_is_shared_out() -> None:
    one, many = (traced(small(SMALL, dp=dp), 0) for dp in (1, 64))
    assert (one.states, one.activations, one.logits) == (many.states, many.activations, many.logits)
    assert one.backward_peak == many.backward_peak


def test_shared_states_fall_with_the_replicas() -> None:
    """Every dimension is a multiple of 8, so that rows divide evenly."""
    whole = traced(small(SMALL), 0)
    for zero, shared in ((1, ("optimizer",)), (2, ("optimizer", "gradients")), (3, ("parameters", "gradients"))):
        for dp in (2, 8):
            found = traced(small(SMALL, dp=dp, zero=zero), 0)
            counts = 4 * found.tensors
            for kind in shared:
                extra = counts if kind == "optimizer" else 0
                assert dp * (getattr(found, kind) - extra) == getattr(whole, kind) - extra


def test_messages_of_a_whole_step() -> None:
    """Tensor parallel: two sums a layer forward and two backward, embedding and head one each (Shoeybi et al. 2019)."""
    m, layers = 4, SMALL.layers
    sums = [x for x in traced(small(SMALL, m, tp=2), 0).messages if (x.kind, x.group) == ("all-reduce", "tp")]
    # Beside the layers: the embedding's sum, the head's gradient, the loss's maximum and sums; once the gradient norm.
    assert [x.count for x in sums] == [m * (4 * layers + 4) + 1]
    replicas = [x for x in traced(small(SMALL, m, dp=4), 0).messages if x.group == "dp"]
    assert [(x.kind, x.bytes) for x in replicas] == [
        ("all-reduce", traced(small(SMALL), 0).parameters + 16)
    ]  # and the norm


def test_the_number_of_micro_batches_changes_nothing_but_the_samples() -> None:
    m = 40
    few, many = (traced(small(SMALL, count, pp=2, cuts=(5, 5)), 0) for count in (4, m))
    assert few.activations == many.activations
    assert many.backward_peak - few.backward_peak == (m - 4) * (64 + 65) * 8
    between = [
        (x.count * m, x.bytes * m) == (y.count * 4, y.bytes * 4)
        for x, y in zip(few.messages, many.messages, strict=True)
        if x.kind in ("send", "receive")
    ]
    assert between == [True, True]


def test_more_micro_batches_than_are_traced_keep_the_same_each() -> None:
    layout = {"pp": 2, "cuts": (5, 5), "schedule": "gpipe"}
    a, b, c = (traced(small(SMALL, m, **layout), 0).activations for m in (8, 16, 24))
    assert c - b == b - a


REAL: dict[str, dict[str, Any]] = {
    "2x2x2": {"pp": 2, "tp": 2, "dp": 2, "sp": True, "cuts": (5, 5)},
    "gpipe, full recompute": {"pp": 2, "dp": 2, "cuts": (5, 5), "schedule": "gpipe", "recompute": "full"},
    "zbv": {"pp": 2, "vpp": 2, "cuts": (3, 2, 2, 3), "placement": (0, 1, 1, 0), "schedule": "zbv"},
    "zero3, hybrid": {"dp": 4, "zero": 3, "shard_group": 2},
    "zero3 under 1f1b": {"dp": 2, "zero": 3, "pp": 2, "cuts": (5, 5)},
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", REAL)
def test_traced_bytes_and_messages_are_those_of_real_ranks(layout: str, tmp_path: Path) -> None:
    given = small(SMALL, 8, **REAL[layout])
    each = given.layout.world // given.layout.pp
    real = real_ranks(given, tmp_path)
    for rank in range(given.layout.pp):
        found, held = traced(given, rank), real[rank * each]
        assert [found.parameters, found.gradients, found.optimizer] == held["states"]
        assert [[x.kind, x.group, x.count, x.bytes] for x in found.messages] == held["messages"]
        # Of the real step alone, as its peers happen to run: up to three messages received ahead of their use, and what
        # up to two exchanges under way hold. It never holds less.
        more = held["after_forward"] - found.after_forward
        under_way = 2 * max((x.bytes / x.count for x in found.messages), default=0)
        assert -64 <= more <= 3 * message_bytes(given) + under_way + 64
        assert found.optimizer_peak == pytest.approx(held["optimizer_peak"], rel=0.01)


def message_bytes(given: Plan) -> int:
    """Bytes of the hidden states between two stages."""
    positions = given.batch.seq_len // (given.layout.tp if given.layout.sp else 1)
    return given.batch.micro_batch * positions * given.setup.proposal.arch.hidden * 4


def real_ranks(given: Plan, folder: Path) -> list[dict[str, Any]]:
    """What each real rank (gloo, one process each) says of its second step."""
    (folder / "plan").write_bytes(pickle.dumps(given))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}
    script = Path(__file__).with_name("traced_ranks.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(folder / "store"), str(folder / "plan")],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(given.layout.world)
    ]  # fmt: skip
    said = [rank.communicate(timeout=170) for rank in ranks]
    assert not any(rank.returncode for rank in ranks), "\n".join(errors[-2000:] for _, errors in said)
    return [json.loads(out) for out, _ in said]
