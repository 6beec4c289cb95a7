"""What holds for the memory of every layout."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.files.plan import Plan
from meshwright.files.prediction import StageMemory
from meshwright.model.architecture import Architecture
from meshwright.predictor.memory import memory_of, rank_memory
from meshwright.predictor.table import layout_table, stage_table

MakePlan = Callable[..., Plan]

DENSE = Architecture("dense", "llama", 8, 512, 8, 4, 64, 1376, 4001, tied=True)
EXPERTS = Architecture("experts", "mixtral", 8, 512, 8, 4, 64, 1024, 4000, experts=8, active_experts=2)

LAYOUTS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2]), "pp": st.sampled_from([1, 2, 4, 12]), "dp": st.sampled_from([1, 2, 8]),
        "sp": st.booleans(), "zero": st.integers(0, 3), "recompute": st.sampled_from(["none", "selective", "full"]),
        "schedule": st.sampled_from(["1f1b", "gpipe", "zb-h1"]), "loss_chunk": st.sampled_from([None, 64]),
        "vocab_parallel": st.booleans(), "vocab_multiple": st.sampled_from([1, 128]),
        "offload": st.sampled_from(["none", "optimizer", "parameters"]),
        "gradient_exchange": st.sampled_from([None, "step"]),
        "precision": st.sampled_from(["fp32", "bf16", "fp8"]), "task": st.sampled_from(["pretrain", "lora"]),
        "optimizer": st.sampled_from(["adamw", "adamw-8bit", "muon", "sgd"]),
        "gpu": st.just("H100-SXM"),
        "runnable_by": st.sampled_from(["any", "meshwright", "megatron", "torchtitan", "deepspeed"]),
    }
)  # fmt: skip
STATES = ("weights", "gradients", "master", "optimizer")
ARCHITECTURES = st.sampled_from([DENSE, EXPERTS])


def ranks(plan: Plan) -> tuple[StageMemory, ...]:
    """The memory of each pipeline rank."""
    return rank_memory(plan.setup, plan.layout, plan.batch)


def no_less(less: Plan, more: Plan) -> None:
    """No rank of the second plan needs less than in the first."""
    for a, b in zip(ranks(less), ranks(more), strict=True):
        assert a.total <= b.total
        assert (a.p_oom or 0) <= (b.p_oom or 0) + 1e-12


@settings(deadline=None)
@given(arch=ARCHITECTURES, layout=LAYOUTS, micro=st.integers(1, 4), length=st.sampled_from([128, 256, 1000]))
def test_more_work_at_once_never_needs_less(
    make_plan: MakePlan, arch: Architecture, layout: dict[str, Any], micro: int, length: int
) -> None:
    now = make_plan(arch, micro, 4, length, **layout)
    no_less(now, make_plan(arch, micro + 1, 4, length, **layout))
    no_less(now, make_plan(arch, micro, 4, 2 * length, **layout))


@settings(deadline=None)
@given(arch=ARCHITECTURES, layout=LAYOUTS, m=st.integers(1, 8))
def test_more_micro_batches_never_need_less(
    make_plan: MakePlan, arch: Architecture, layout: dict[str, Any], m: int
) -> None:
    if layout["schedule"] == "zb-h1":  # its order of actions depends on what is left over of whole rounds
        m = m * layout["pp"]
    step = layout["pp"] if layout["schedule"] == "zb-h1" else 1
    no_less(make_plan(arch, 1, m, 128, **layout), make_plan(arch, 1, m + step, 128, **layout))


@settings(deadline=None)
@given(arch=ARCHITECTURES, layout=LAYOUTS)
def test_parts_are_bytes_and_sum_to_the_peak(make_plan: MakePlan, arch: Architecture, layout: dict[str, Any]) -> None:
    for rank in ranks(make_plan(arch, 2, 4, 128, **layout)):
        assert all(size >= 0 for size in rank.parts.values())
        assert rank.total == sum(rank.parts.values())
        assert rank.total == pytest.approx(max(rank.moments.values()), abs=len(rank.parts))
        assert sum(rank.units.values()) >= 0
        if rank.moments["backward"] > rank.moments["optimizer step"]:
            assert sum(rank.units.values()) == pytest.approx(rank.parts["activations"], abs=len(rank.units) + 1)
        assert rank.p_oom is not None
        assert 0 <= rank.p_oom <= 1
        assert rank.range is not None
        assert rank.range[0] <= rank.total <= rank.range[1]


@settings(deadline=None)
@given(layout=LAYOUTS, zero=st.integers(1, 3))
def test_states_fall_with_sharding_as_a_plus_b_over_n(make_plan: MakePlan, layout: dict[str, Any], zero: int) -> None:
    def states(shards: int) -> float:
        """In the optimizer step: earlier the gradients may be there in part."""
        plan = make_plan(DENSE, 1, 8, 128, **{**layout, "zero": zero, "dp": shards, "offload": "none"})
        stages = stage_table(
            layout_table(plan.setup, plan.layout, plan.batch), plan.layout.stages, plan.layout.placement
        )
        parts = memory_of(plan.setup, plan.layout, plan.batch, stages).parts.step
        return sum(np.broadcast_to(parts[kind], (1, plan.layout.pp))[0, 0] for kind in STATES)

    two, four, eight = states(2), states(4), states(8)
    assert two >= four >= eight
    assert two - four == pytest.approx(2 * (four - eight), rel=1e-3, abs=64)


@pytest.mark.parametrize("placement", list(permutations(range(3))))
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_names_of_ranks_do_not_matter(make_plan: MakePlan, placement: tuple[int, ...], recompute: str) -> None:
    shape = {"pp": 3, "recompute": recompute, "zero": 1, "dp": 2}
    usual = ranks(make_plan(DENSE, 1, 6, 128, **shape))
    renamed = ranks(make_plan(DENSE, 1, 6, 128, placement=placement, **shape))
    for stage, rank in enumerate(placement):
        assert renamed[rank].parts == usual[stage].parts
        assert renamed[rank].stages == (stage,)
