"""Single kernels against published measurements of them (data/measurements/primitives.csv), and what shapes cost."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from meshwright.cluster import catalogue
from meshwright.predictor.kernels import Speed, fused_attention_s, gemm_s, plain_attention_s, speed_of
from meshwright.predictor.stacks import stack_named

PRIMITIVES = Path(__file__).parents[2] / "data" / "measurements" / "primitives.csv"
DEVICES = {"A100-80GB-PCIe": "A100-80GB-PCIe", "B200": "B200"}


def speed(gpu: str, precision: str = "bf16", stack: str = "plain") -> Speed:
    """The speeds of a device of the catalogue."""
    return speed_of(catalogue.device(gpu), precision, stack_named(stack))  # type: ignore[arg-type]


def published(gpu: str, what: str) -> list[tuple[dict[str, str], float]]:
    """(shape, FLOP/s) of every kernel of one sort that was measured on one device."""
    with PRIMITIVES.open(encoding="utf-8", newline="") as file:
        found = [row for row in csv.DictReader(file) if row["gpu"] == gpu and row["what"] == what]
    return [(dict(re.findall(r"(\w+)=([\w.]+)", row["shape_or_bytes"])), float(row["value"]) * 1e12) for row in found]


@pytest.mark.parametrize("gpu", DEVICES)
def test_products_take_as_long_as_published(gpu: str) -> None:
    """Hundreds of shapes of real models. What they reach for a moment is more than what training sustains: the
    constants come from training, so they lie a little lower."""
    ratios = []
    for shape, rate in published(gpu, "gemm_tflops"):
        m, n, k = (int(shape[name]) for name in "mnk")
        result = 8.0 if shape["accumulate"] == "True" and shape["out_dtype"] == "fp32" else None
        ratios.append(gemm_s(speed(DEVICES[gpu]), m, n, k, 2, result_bytes=result) / (2.0 * m * n * k / rate))
    assert len(ratios) > 150
    assert 0.95 < median(ratios) < 1.2
    within = [ratio for ratio in ratios if abs(ratio / median(ratios) - 1) < 0.3]
    assert len(within) > 0.85 * len(ratios)


def test_groups_of_small_products_take_as_long_as_published() -> None:
    """The experts of a mixture on a B200: with 154 tokens each they reach an eighth of the peak."""
    ratios = []
    for shape, rate in published("B200", "grouped_gemm_tflops"):
        if shape["stage"] == "bwd_grad_w":
            continue
        copies, m, n, k = (int(shape[name]) for name in ("ng", "M", "N", "K"))
        ratios.append(gemm_s(speed("B200"), m, n, k, 2, copies) / (2.0 * m * n * k * copies / rate))
    assert 0.85 < median(ratios) < 1.2
    assert max(ratios) / min(ratios) < 4


@pytest.mark.parametrize("gpu", DEVICES)
@pytest.mark.parametrize(("what", "index"), [("attention_fwd_tflops", 0), ("attention_bwd_tflops", 1)])
def test_fused_attention_takes_as_long_as_published(gpu: str, what: str, index: int) -> None:
    """Printed rates count all pairs of tokens, though only half are computed; backward counts 2.5 times the forward."""
    ratios = []
    for shape, rate in published(gpu, what):
        seq, heads = int(shape["seq_len"]), int(shape["head_num"])
        key, value = int(shape["qk_head_dim"]), int(shape["v_head_dim"])
        full = 2.0 * seq * seq * heads * (key + value)
        seconds = fused_attention_s(speed(DEVICES[gpu]), full / 2, heads * seq / 128, key)[index]
        ratios.append(seconds / (full * (2.5 if index else 1.0) / rate))
    assert 0.8 < median(ratios) < 1.25


def test_a_side_that_is_no_multiple_of_eight_is_slow() -> None:
    """The SwiGLU network of width 10,922 in the same table: 0.69 of the rate at 10,944."""
    odd, even = (gemm_s(speed("H100-SXM"), 16384, width, 4096, 2) for width in (10922, 10944))
    assert odd / even == pytest.approx(395 / 272.7, rel=0.1)


def test_attention_out_of_single_kernels_moves_its_scores() -> None:
    """With dropout more than without; and heads of 150 go without matrix units (BLOOM chronicles)."""
    plain = speed("A100-80GB-SXM", "fp16", "megatron-2020+no-dropout")
    plain = replace(plain, scores_bytes=2.0)
    dropped = replace(plain, scores_bytes=5.0)
    assert plain_attention_s(dropped, 16, 2048, 2048, 128) > plain_attention_s(plain, 16, 2048, 2048, 128)
    fused = fused_attention_s(plain, 2.0 * 2048 * 1024 * 16 * 256, 16 * 16, 128)
    assert plain_attention_s(plain, 16, 2048, 2048, 128)[0] > 1.5 * fused[0]
    wide, odd = (sum(plain_attention_s(plain, 16, 2048, 2048, width)) for width in (152, 150))
    assert odd > 2 * wide


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_quantised_products_are_faster_and_casts_cost(precision: str) -> None:
    half, eighths = speed("GB200"), speed("GB200", precision)
    assert gemm_s(eighths, 8192, 8192, 8192, 2) < 0.75 * gemm_s(half, 8192, 8192, 8192, 2)
    assert gemm_s(eighths, 8192, 8192, 8192, 2, half=True) == gemm_s(half, 8192, 8192, 8192, 2)
    assert eighths.cast > 0 == half.cast


def test_habits_of_software_are_those_of_gpus() -> None:
    """A CPU worker is measured with the software that runs on it."""
    core = catalogue.device("A100-80GB-SXM")
    worker = replace(core, kind="cpu", name="worker")
    assert speed_of(worker, "bf16", stack_named("megatron-deepspeed-2023")) == speed_of(worker, "bf16")
    assert speed_of(core, "bf16", stack_named("megatron-deepspeed-2023")) != speed_of(core, "bf16")


def test_software_is_slower_on_devices_that_came_after_it() -> None:
    ours, older = speed("H100-SXM"), speed("H100-SXM", stack="llm-foundry")
    known = speed("A100-80GB-SXM", stack="llm-foundry")
    assert older.gemm_efficiency / ours.gemm_efficiency < known.gemm_efficiency / speed("A100-80GB-SXM").gemm_efficiency


def test_graphs_take_the_hosts_time_away() -> None:
    plain, graphs = speed("GB200", stack="megatron-bridge"), speed("GB200", stack="megatron-bridge+graphs")
    some = speed("GB200", stack="megatron-bridge+some-graphs")
    assert graphs.launch_s < 0.3 * plain.launch_s
    assert graphs.launch_s < some.launch_s < plain.launch_s
