"""`predict --tokens --price`, HFU and traffic; `plan --pareto --sensitivity`; `why`."""

from pathlib import Path

import pytest

import meshwright
from meshwright.basics.errors import InputError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "worked-example"
PLAN = EXAMPLES / "tensor-split.toml"


def test_a_budget_is_tokens_over_the_rate() -> None:
    found = meshwright.predict(PLAN, tokens="300B", price=2.5)
    budget, rate = found["budget"], found["tokens_per_s"]
    seconds = 300e9 / rate
    assert budget["days"] == pytest.approx(seconds / 86400)
    assert budget["gpu_hours"] == pytest.approx(seconds / 3600 * 8)
    assert budget["cost"] == pytest.approx(2.5 * budget["gpu_hours"])
    assert budget["board_watts"] == 400  # A100-SXM, NVIDIA's data sheet
    assert budget["energy_mwh"] == pytest.approx(400 * budget["gpu_hours"] / 1e6)
    assert budget["steps"] == -(-300 * 10**9 // (256 * 2048))


def test_no_budget_unless_asked() -> None:
    found = meshwright.predict(PLAN)
    assert found["budget"] is None
    assert meshwright.predict(PLAN, tokens="1M")["budget"]["cost"] is None


@pytest.mark.parametrize(("tokens", "price"), [("many", None), ("0", None), (None, 2.0), ("1B", -1.0)])
def test_nonsense_is_named(tokens: str | None, price: float | None) -> None:
    with pytest.raises(InputError) as error:
        meshwright.predict(PLAN, tokens=tokens, price=price)
    assert error.value.complaints[0].field in ("--tokens", "--price")


def test_hfu_counts_what_full_recompute_repeats() -> None:
    """A forward more of every layer: 4/3, less the head, which is not recomputed."""
    found = meshwright.predict(PLAN)
    assert found["layout"]["recompute"] == "full"
    assert 1.2 < found["hfu"] / found["mfu"] < 4 / 3
    plain = meshwright.predict(PLAN, overrides=["layout.recompute='none'"])
    assert plain["hfu"] == plain["mfu"]


def test_traffic_of_a_tensor_group() -> None:
    """Two all-reduces a layer in forward, backward and recompute, one at each end of the model; 2 (t - 1) / t of 2
    bytes for each value of the hidden states, spread over pp ranks."""
    found = meshwright.predict(PLAN)
    layers, hidden = 20, 2048
    tokens = 256 // found["layout"]["dp"] * 2048
    each = 2 * 1 / 2 * 2 * tokens * hidden
    assert found["traffic_gb"]["tp"] == pytest.approx((2 * 3 * layers + 2) * each / 4 / 1e9, rel=0.02)
    assert found["between_nodes_gb"] == 0


def test_exposed_communication_by_group_sums_to_all_of_it() -> None:
    found = meshwright.predict(PLAN)
    assert sum(found["exposed_comm_by_group_s"].values()) == pytest.approx(found["exposed_comm_s"])


def test_front_and_relaxations_on_request_only() -> None:
    job = EXAMPLES / "job.toml"
    plain, more = meshwright.plan(job, top=1), meshwright.plan(job, top=1, pareto=True, sensitivity=True)
    assert plain["pareto"] == plain["sensitivity"] == []
    assert more["pareto"][0]["slower"] == 0
    memory = [point["memory_gib"] for point in more["pareto"]]
    assert memory == sorted(memory, reverse=True)
    assert {"twice the devices (16)", "devices with twice the memory"} <= {one["change"] for one in more["sensitivity"]}


def test_why_names_the_choices_that_differ() -> None:
    found = meshwright.why(EXAMPLES / "attention-ffn.toml", PLAN)
    differ = {one["field"]: (one["first"], one["second"]) for one in found["differs"]}
    assert differ["tp"] == (1, 2)
    assert differ["pp"] == (8, 4)
    assert "zero" not in differ
    total = sum(term["difference_s"] for term in found["terms"])
    assert total == pytest.approx(found["second_step_time_s"] - found["first_step_time_s"])


def test_bucket_sizes_on_request(tmp_path: Path) -> None:
    target = tmp_path / "plan.toml"
    meshwright.plan(EXAMPLES / "job.toml", top=1, output=target)
    found = meshwright.predict(target, buckets=True)["buckets"]
    rounds = [one["rounds"] for one in found]
    assert rounds == sorted(rounds, reverse=True)
    assert sum(one["knee"] for one in found) == 1
    assert meshwright.predict(target)["buckets"] == []
