"""Rows of measured tables as plans: nothing skipped that can be predicted, and what was assumed is said."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.files.rows import COLUMNS, Row, read_rows, row_of
from meshwright.layout.problem import problem_of
from meshwright.layout.rules import LEGALITY
from meshwright.model.parameters import total_parameters
from meshwright.planner.configurations import Configuration, Skipped, configuration_of
from meshwright.planner.rows_stack import row_stack
from meshwright.predictor.stacks import stack_of

DATA = Path(__file__).parents[2] / "data" / "measurements"


@pytest.fixture(scope="module")
def found() -> list[Configuration | Skipped]:
    return [configuration_of(row) for row in read_rows(DATA / "measurements.csv")]


def _plan(**values: Any) -> Configuration:
    given = {
        "gpu": "A100-80GB", "gpus": 8, "dp": 8, "tp": 1, "pp": 1, "cp": 1, "micro_batch": 1, "global_batch": 64,
        "seq_len": 2048, "layers": 32, "hidden": 4096, "heads": 32, "framework": "Megatron-LM", "date": "2024-06",
    }  # fmt: skip
    answer = configuration_of(Row(line=1, **{**given, **values}))
    assert isinstance(answer, Configuration)
    return answer


def test_no_complete_row_of_trust_a_or_b_is_skipped(found: list[Configuration | Skipped]) -> None:
    skipped = [one for one in found if isinstance(one, Skipped) and one.row.trust in "AB" and one.row.complete]
    assert [(one.row.name, one.reason) for one in skipped] == []


def test_rows_are_skipped_for_contradictions_or_what_cannot_be_guessed_only(
    found: list[Configuration | Skipped],
) -> None:
    skipped = [one for one in found if isinstance(one, Skipped)]
    assert 0 < len(skipped) <= 25
    for one in skipped:
        assert one.kind == ("nonsense" if one.row.consistency.startswith("INCONSISTENT") else "missing")


def test_every_plan_of_a_measured_row_is_legal(found: list[Configuration | Skipped]) -> None:
    broken = [
        (one.row.name, problem_of(rule, one.plan.setup.proposal).message)
        for one in found
        if isinstance(one, Configuration)
        for rule in LEGALITY
        if not rule.holds(one.plan.setup.proposal)
    ]
    assert broken == []


def test_parameter_counts_are_near_the_published_ones(found: list[Configuration | Skipped]) -> None:
    published = {
        "DeepSeekV3": 671e9, "Qwen3_235B_a22B": 235e9, "Kimi_K2": 1.03e12, "LLAMA3_70B": 70.6e9,
        "Nemotron_3_Nano": 31.6e9, "Nemotron_3_Super": 120e9, "GPT3 175B": 175e9,
        "Nemotron4 340B": 341e9, "GPT-OSS 120B": 117e9, "GPT 52B": 52e9,
        "InternLM-20B": 20e9, "torchtitan deepseek_v3 16B flavor": 15.7e9, "MPT-7b": 6.7e9,
    }  # fmt: skip
    counts = {
        one.row.model_name: total_parameters(one.plan.setup.proposal.arch)
        for one in found
        if isinstance(one, Configuration)
    }
    assert {name: counts[name] / count for name, count in published.items()} == {
        name: pytest.approx(1, abs=0.06) for name in published
    }


@pytest.mark.parametrize(
    ("framework", "date", "base"),
    [
        ("Megatron-LM", "2021-04", "megatron-2020"), ("NeMo/Megatron-Core", "2024-11", "megatron-2024"),
        ("Megatron-Bridge/Megatron-Core", "26.04.01", "megatron-bridge"),
        ("Megatron-LM 0.14", "2026-05", "megatron-2025"),
        ("Megatron-DeepSpeed", "2022-02", "megatron-deepspeed"),
        ("Megatron-LM (zero-bubble fork)", "2023-11", "zero-bubble"), ("DeepSpeed ZeRO-3", "2021", "deepspeed"),
        ("MaxText (JAX)", "2025", "maxtext"), ("llm-foundry/Composer FSDP", "2023", "llm-foundry"),
    ],
)  # fmt: skip
def test_software_of_a_framework_and_date(framework: str, date: str, base: str) -> None:
    assert row_stack(Row(line=1, framework=framework, date=date)).stack.name.split("+")[0] == base


@pytest.mark.parametrize(("date", "master"), [("2024-06", 2.0), ("2024-11", 4.0)])
def test_nemo_reduces_in_half_precision_and_kept_remainders_at_first(date: str, master: float) -> None:
    plan = _plan(framework="NeMo/Megatron-Core", date=date).plan
    assert plan.setup.proposal.training.gradient_dtype == "bf16"
    assert stack_of(plan.setup).master_bytes == master


def test_an_unknown_framework_is_said() -> None:
    assert any("Frobnicator" in line for line in _plan(framework="Frobnicator").assumed)


def test_unknown_recompute_is_the_least_that_fits() -> None:
    roomy = _plan(recompute="unknown")
    assert roomy.plan.layout.recompute == "none"
    assert any("recompute" in line for line in roomy.assumed)
    assert _plan(recompute="unknown", gpu="A100-40GB", seq_len=16384, zero_stage=1).plan.layout.recompute == "full"
    assert not any("recompute" in line for line in _plan(recompute="full").assumed)


def test_software_that_recomputes_by_default_recomputes_at_least_that() -> None:
    assert _plan(recompute="", framework="torchtitan", date="2025").plan.layout.recompute == "selective"
    assert _plan(recompute="", framework="MaxText (JAX)", date="2025").plan.layout.recompute == "full"


def test_a_model_cut_short_keeps_the_share_of_its_dense_layers() -> None:
    def dense(layers: int) -> tuple[int, ...]:
        row = {"model_name": "DeepSeek-V3", "layers": layers, "hidden": None, "heads": None}
        return _plan(**row).plan.setup.proposal.arch.dense_layers

    assert (dense(61), dense(30), dense(4)) == ((0, 1, 2), (0,), (0,))


def test_layers_that_divide_with_embedding_and_head_give_lighter_ends() -> None:
    stages = _plan(layers=30, pp=8, dp=1).plan.layout.stages  # 30 + 2 = 8 · 4
    assert [sum(".ffn" in unit for unit in stage) for stage in stages] == [3, 4, 4, 4, 4, 4, 4, 3]


def test_chunks_make_a_pipeline_interleaved() -> None:
    layout = _plan(pp=4, vpp=2, dp=2).plan.layout
    assert (layout.schedule, len(layout.stages), layout.placement) == ("interleaved", 8, (0, 1, 2, 3) * 2)


def test_a_peak_beyond_the_device_is_nonsense() -> None:
    degrees = {"gpus": 8, "dp": 8, "tp": 1, "pp": 1, "cp": 1, "layers": 32, "hidden": 4096}
    answer = configuration_of(Row(line=1, gpu="A100-80GB", peak_memory_gib=55_491.0, **degrees))
    assert isinstance(answer, Skipped)
    assert (answer.kind, "MiB" in answer.reason) == ("nonsense", True)


def test_a_row_without_devices_or_degrees_says_what_is_missing() -> None:
    without = configuration_of(Row(line=1, gpu="H100"))
    assert isinstance(without, Skipped)
    assert (without.kind, "gpus" in without.reason) == ("missing", True)
    unguessable = configuration_of(Row(line=1, gpu="H100", gpus=8, params_b=7.0))
    assert isinstance(unguessable, Skipped)
    assert "tp" in unguessable.reason


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(COLUMNS),
        st.one_of(st.integers(-2, 300).map(str), st.sampled_from(["true", "full", "fp8", "A100", "zbv", "7B"])),
        min_size=8,
    )
)  # fmt: skip
def test_no_row_is_fatal(values: dict[str, str]) -> None:
    base = {"gpu": "H100", "gpus": "8", "dp": "1", "tp": "4", "pp": "2", "model_name": "GPT 7B"}
    record = {**base, **values}
    assert isinstance(configuration_of(row_of(list(record), list(record.values()))), Configuration | Skipped)
