"""Every constant that a prediction rests on is named with its origin; none that it does not use."""

from collections.abc import Callable
from dataclasses import replace

from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture
from meshwright.predictor.step import predict

MakePlan = Callable[..., Plan]


def test_one_device_rests_on_no_link(make_plan: MakePlan, llama_7b: Architecture) -> None:
    names = set(predict(make_plan(llama_7b, 1, 4, 512)).origins)
    assert {"peak_flops", "launch", "kernel_gap", "forward_kernels", "gemm_efficiency", "step_host", "range"} <= names
    assert not {name for name in names if "node" in name or "collective" in name or "communicator" in name}


def test_links_count_by_the_level_that_is_used(make_plan: MakePlan, llama_7b: Architecture) -> None:
    inside = set(predict(make_plan(llama_7b, 1, 4, 512, dp=8)).origins)
    across = set(predict(make_plan(llama_7b, 1, 4, 512, dp=16)).origins)
    assert {"intra_node_rate", "collective_efficiency", "collective_launch", "communicator_buffers"} <= inside
    assert across - inside == {"inter_node_rate", "inter_node_latency", "inter_node_efficiency"}


def test_data_sheets_are_told_from_guesses(make_plan: MakePlan, llama_7b: Architecture) -> None:
    origins = predict(make_plan(llama_7b, 1, 4, 512, gpu="H100-SXM", precision="fp8")).origins
    assert origins["peak_flops"] == origins["memory_bandwidth"] == "data sheet"
    assert origins["launch"] == "guessed"
    assert origins["gemm_efficiency"] == origins["quantised_efficiency"] == "fitted"
    assert set(origins.values()) <= {"measured", "fitted", "data sheet", "guessed"}


def test_experts_bring_their_own(make_plan: MakePlan, llama_7b: Architecture) -> None:
    experts = replace(llama_7b, experts=8, active_experts=2)
    assert "expert_kernels" in predict(make_plan(experts, 1, 4, 512)).origins
    assert "expert_kernels" not in predict(make_plan(llama_7b, 1, 4, 512)).origins
