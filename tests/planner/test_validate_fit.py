"""Figures of a machine from its rows: found again where they are known, refused where they would not help."""

from dataclasses import replace
from typing import Any

import pytest

from meshwright.planner.validate import Judged, judge
from meshwright.planner.validate_fit import MachineFit, fit_machine, on_machine, scaled_device
from meshwright.planner.validate_measured import MeasuredStep
from meshwright.predictor.step import predict

from .validate_rows import row

NODES = {"gpus": 16, "inter_node_link": "200 Gb/s per GPU", "global_batch": 128}
CONFIGURATIONS: list[dict[str, Any]] = [
    {"dp": 16, **NODES}, {"dp": 8, "tp": 2, **NODES}, {"dp": 4, "tp": 4, **NODES}, {"dp": 2, "tp": 8, **NODES},
    {"dp": 8, "pp": 2, **NODES}, {"dp": 16, **NODES, "zero_stage": 3}, {"dp": 8}, {"dp": 4, "tp": 2},
    {"dp": 2, "tp": 4}, {"dp": 1, "tp": 8}, {"dp": 8, "micro_batch": 4}, {"dp": 4, "pp": 2}, {"dp": 8, "seq_len": 4096},
]  # fmt: skip


def on_a_machine(scales: dict[str, float], noise: float = 0.0, **more: Any) -> list[Judged]:
    """Rows whose steps take what is predicted for a machine that is so many times slower, up and down by `noise`."""
    found = []
    for line, values in enumerate(CONFIGURATIONS):
        one = judge(row(line, **{"layers": 32, "hidden": 4096, "ffn_hidden": 16384, "heads": 32, **values, **more}))
        assert isinstance(one, Judged), one
        seconds = predict(on_machine(one.plan, scales)).step_time_s * (1 + noise * (-1) ** line)
        found.append(replace(one, step=MeasuredStep(seconds, "step time")))
    return found


def fit(rows: list[Judged]) -> MachineFit:
    found = fit_machine(rows)
    assert isinstance(found, MachineFit), found
    return found


def test_a_slower_machine_is_found_again() -> None:
    found = fit(on_a_machine({"compute": 1.3, "communication": 1.6, "host": 1.0}))
    assert not found.refused
    assert found.scales["compute"] == pytest.approx(1.3, rel=0.03)
    assert found.scales["communication"] == pytest.approx(1.6, rel=0.1)
    assert found.before > 0.2
    assert found.after < 0.03


def test_the_figures_written_are_those_of_the_scales() -> None:
    rows = on_a_machine({"compute": 1.3, "communication": 1.6, "host": 1.0})
    found = fit(rows)
    device = rows[0].plan.setup.proposal.cluster.device
    slower = 1 / found.scales["compute"]
    assert found.device.peak_flops["bf16"].value == pytest.approx(device.peak_flops["bf16"].value * slower)
    assert found.device.peak_flops["bf16"].origin == "fitted"
    rates = {link.name: link.bytes_per_s.value for link in found.links}
    assert set(rates) == {"nvlink3", "25 GB/s"}
    assert rates["25 GB/s"] == pytest.approx(25e9 / found.scales["communication"])


def test_what_the_rows_do_not_show_stays() -> None:
    alone = on_a_machine({"compute": 1.3, "communication": 1.0, "host": 1.0}, gpus=1, dp=1, tp=1, pp=1, zero_stage=0)
    batches = [replace(one, row=replace(one.row, line=line)) for line, one in enumerate(alone)]
    found = fit(batches)
    assert "communication" in found.unseen
    assert found.scales["communication"] == 1
    assert found.links == ()


def test_a_fit_that_does_not_help_is_refused() -> None:
    found = fit(on_a_machine({"compute": 1.0, "communication": 1.0, "host": 1.0}, noise=0.01))
    assert "does not help" in found.refused


def test_rows_far_from_any_machine_are_refused() -> None:
    rows = [
        replace(one, step=MeasuredStep(one.prediction.step_time_s * 8, "step time"))
        for one in on_a_machine({"compute": 1.0, "communication": 1.0, "host": 1.0})
    ]
    assert "more than any machine differs" in fit(rows).refused


def test_an_outlier_does_not_carry_the_fit_away() -> None:
    rows = on_a_machine({"compute": 1.3, "communication": 1.0, "host": 1.0})
    assert isinstance(rows[3].step, MeasuredStep)
    rows[3] = replace(rows[3], step=MeasuredStep(rows[3].step.seconds * 4, "step time"))
    assert fit(rows).scales["compute"] == pytest.approx(1.3, rel=0.05)


def test_few_rows_and_several_devices_are_refused() -> None:
    rows = on_a_machine({"compute": 1.3, "communication": 1.0, "host": 1.0})
    assert "9 configurations have a measured step time" in str(fit_machine(rows[:9]))
    other = on_a_machine({"compute": 1.3, "communication": 1.0, "host": 1.0}, gpu="H100-80GB-SXM")
    assert "a fit is of one machine" in str(fit_machine([*rows[:9], *other[9:]]))


def test_scaling_by_one_keeps_the_figures_and_their_origin() -> None:
    device = on_a_machine({"compute": 1.0, "communication": 1.0, "host": 1.0})[0].plan.setup.proposal.cluster.device
    assert scaled_device(device, {"compute": 1.0, "host": 1.0}) == device
