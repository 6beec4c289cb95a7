"""The memory of a plan in a terminal: a line a kind, a column a pipeline rank, whatever the width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.files import outputs as out
from meshwright.files import outputs_memory as mem
from meshwright.reports.terminal_memory import chance, memory_view

from .test_terminal import shown

KINDS = (
    "weights", "gradients", "master", "optimizer", "gathered", "activations", "recomputed", "logits", "step",
    "communication", "reserve", "context",
)  # fmt: skip
RECIPE = mem.RecipePart(text="2 weight = 2 B a parameter", states=[], bytes_per_parameter=2.0, settings={})


def stage(rank: int, each: float, **changes: object) -> out.MemoryStagePart:
    total = each * len(KINDS)
    values: dict[str, object] = {
        "pipeline_rank": rank, "stages": [rank], "parts_gib": dict.fromkeys(KINDS, each), "total_gib": total,
        "total_gb": total * 1.0737, "range_gib": (total * 0.9, total * 1.1), "limit_gib": 79.15, "p_oom": 0.31,
        "verdict": "tight", "in_flight": 3, "units_gib": {"attn": each / 2, "ffn": each / 2},
        "moments_gib": {"backward": total, "optimizer step": total / 2},
    }  # fmt: skip
    return out.MemoryStagePart.model_validate({**values, **changes})


def memory(stages: list[out.MemoryStagePart], **changes: object) -> mem.MemoryOutput:
    worst = max(stages, key=lambda one: one.total_gib)
    values: dict[str, object] = {
        "mode": "predicted", "stages": stages, "worst_stage": worst.pipeline_rank, "limit_gib": 79.15, "fits": True,
        "verdict": "tight", "p_oom": 0.31, "recipe": RECIPE, "advice": [],
    }  # fmt: skip
    return mem.MemoryOutput.model_validate({**values, **changes})


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("ranks", [1, 4, 8, 16, 64])
def test_every_rank_or_the_first_the_fullest_and_the_last(ranks: int, width: int) -> None:
    stages = [stage(rank, 12.34 if rank == ranks // 2 else 10.0 + rank / 100) for rank in range(ranks)]
    text = shown(memory_view(memory(stages)), width)
    head = next(line for line in text.splitlines() if line.startswith("pipeline rank"))
    wanted = range(ranks) if ranks <= 8 else sorted({0, ranks // 2, ranks - 1})
    names = [f"{rank}*" if rank == ranks // 2 else str(rank) for rank in wanted]
    assert head.split()[2:] == [*names, *(["least", "most"] if ranks > 8 else [])]
    assert "…" not in text
    total = next(line for line in text.splitlines() if line.startswith("total "))
    assert f"{12.34 * 12:.2f}" in total
    for kind in KINDS:
        assert any(line.startswith(kind) for line in text.splitlines())


def test_gib_gb_limit_range_and_probability_stand_in_one_sentence() -> None:
    text = " ".join(shown(memory_view(memory([stage(0, 1.0), stage(1, 2.0)]))).split())
    assert "fullest: pipeline rank 1, 24.00 GiB (25.77 GB) of 79.15 GiB, nine of ten runs 21.60 to 26.40: tight" in text
    assert "runs out with a probability of 31 % (predicted)" in text
    assert "bytes a parameter: 2 weight = 2 B a parameter" in text


def test_what_is_not_estimated_is_not_shown_as_zero() -> None:
    text = shown(memory_view(memory([stage(0, 1.0, p_oom=None, range_gib=None)], p_oom=None)))
    assert "runs out" not in text
    assert "nine of ten" not in text


def test_several_stages_of_a_rank_are_listed() -> None:
    text = shown(memory_view(memory([stage(0, 1.0, stages=[0, 3]), stage(1, 1.0, stages=[1, 2])])))
    assert next(line for line in text.splitlines() if line.startswith("stages")).split() == ["stages", "0,3", "1,2"]


def advice(**changes: object) -> mem.AdvicePart:
    values: dict[str, object] = {
        "change": {"layout.recompute": "full"}, "label": "layout.recompute = full", "before_gib": 85.5,
        "after_gib": 52.25, "saved_gib": 33.25, "spare_gib": 26.9, "p_oom": 0.0, "verdict": "fits",
        "step_time_change": 0.285, "runnable_by": ["megatron"], "as_asked": True,
    }  # fmt: skip
    return mem.AdvicePart.model_validate({**values, **changes})


def test_advice_says_by_how_much_and_at_what_price() -> None:
    full = memory([stage(0, 8.0, verdict="does not fit")], verdict="does not fit", fits=False, advice=[advice()])
    text = " ".join(shown(memory_view(full)).split())
    assert "what single change would make it fit (predicted, fullest rank)" in text
    words = "layout.recompute = full: 52.25 GiB instead of 85.50 GiB, saves 33.25: fits, 26.90 to spare; step +28.5%"
    assert words in text
    missing = advice(verdict="does not fit", spare_gib=-3.5, step_time_change=None, as_asked=False)
    text = " ".join(shown(memory_view(full.model_copy(update={"advice": [missing]}))).split())
    assert "no single change and no pair of them is enough" in text
    assert "still does not fit, 3.50 missing; step not predicted; can be run by megatron" in text


@given(st.floats(0, 1))
def test_a_probability_is_never_rounded_to_certainty(p: float) -> None:
    assert chance(p) not in ("0 %", "0.0 %", "100 %")
    assert chance(None) == "unknown"


def test_a_peak_without_gradients_is_explained() -> None:
    """Software that frees gradients between steps has none before the first backward."""
    words = "no gradients at that moment"
    bare = stage(0, 10.0, parts_gib={"weights": 4.0, "gradients": 0.0, "activations": 6.0})
    assert words in shown(memory_view(memory([bare])), 100)
    usual = stage(0, 10.0, parts_gib={"weights": 4.0, "gradients": 2.0, "activations": 4.0})
    assert words not in shown(memory_view(memory([usual])), 100)
    away = stage(0, 10.0, parts_gib={"gathered": 4.0, "activations": 6.0})  # parameters lie in CPU memory
    assert words not in shown(memory_view(memory([away])), 100)
