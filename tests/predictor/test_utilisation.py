"""Model FLOPs utilisation."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright.basics.figures import Constant
from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture
from meshwright.predictor.utilisation import model_flops_utilisation


def test_half_of_the_peak_is_one_half(make_plan: Callable[..., Plan], llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 1, 8, 2048, dp=8)  # 64 · 2048 tokens · (6 · 6.607 B + 6 · 32 · 4096 · 2048 of attention)
    seconds = 64 * 2048 * (6 * 6.607e9 + 6 * 32 * 4096 * 2048) / (8 * 312e12) / 0.5
    found = model_flops_utilisation(plan.setup.proposal, plan.batch, 8, seconds)
    assert found == pytest.approx(0.5, rel=1e-3)


def test_no_share_of_a_peak_that_is_guessed_or_not_known(
    make_plan: Callable[..., Plan], llama_7b: Architecture
) -> None:
    plan = make_plan(llama_7b, 1, 1, 512)
    for peaks in ({"bf16": Constant(1e12, "guessed")}, {"fp32": Constant(1e12, "data sheet")}):
        device = replace(plan.setup.proposal.cluster.device, peak_flops=peaks)
        cluster = replace(plan.setup.proposal.cluster, device=device)
        proposal = replace(plan.setup.proposal, cluster=cluster)
        assert model_flops_utilisation(proposal, plan.batch, 1, 1.0) is None


def test_a_fitted_peak_does_not_move_what_shares_are_of(make_plan: Callable[..., Plan], llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 1, 1, 512)
    cluster = plan.setup.proposal.cluster
    slower = replace(cluster.device, peak_flops={"bf16": Constant(200e12, "fitted")})
    fitted = replace(plan.setup.proposal, cluster=replace(cluster, device=slower))
    whole = model_flops_utilisation(plan.setup.proposal, plan.batch, 1, 1.0)
    assert whole is not None
    assert model_flops_utilisation(fitted, plan.batch, 1, 1.0) == whole
