"""`meshwright memory` through the command line: what does not fit, failed requests, what fits, what is traced."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshwright.basics.errors import InputError
from meshwright.cli import traced_parts

Run = Callable[..., Any]  # the fixture `meshwright` of conftest.py

# 2 samples of 128 tokens, a stage of 2 layers of 256: the scores of 4096 words in fp32 are 4 MiB, a block of 20 MiB.
SCORES = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of 79.15 GiB of which 5.00 MiB is free"
)


def test_one_object_with_recipe_verdicts_and_advice(meshwright: Run) -> None:
    answer = meshwright("memory", "fixed.toml", "--json").json()
    assert (answer["verdict"], answer["fits"]) == ("fits", True)
    assert answer["p_oom"] == max(stage["p_oom"] for stage in answer["stages"])
    assert answer["recipe"]["bytes_per_parameter"] == 16  # fp32 weights, gradients and two moments: our trainer's bf16
    assert {state["state"]: state["ranks"] for state in answer["recipe"]["states"]} == {
        "weight": 1, "gradient": 1, "moments": 1,
    }  # fmt: skip
    sharded = meshwright("memory", "fixed.toml", "--set", "layout.zero=1", "--json").json()["recipe"]
    assert sharded["bytes_per_parameter"] == 4 + 4 + 8 / 2
    assert "8 moments / 2" in sharded["text"]
    for stage in answer["stages"]:
        assert stage["total_gb"] == pytest.approx(stage["total_gib"] * 1.073741824)
        low, high = stage["range_gib"]
        assert low < stage["total_gib"] < high


def test_what_does_not_fit_ends_with_1_and_says_what_would(meshwright: Run) -> None:
    long = ("--set", "batch.seq_len=16384", "--set", "cluster.memory_gib=2.5")
    ended = meshwright("memory", "fixed.toml", *long)
    assert ended.code == 1, ended.err
    assert ended.err == ""
    assert "does not fit" in ended.out
    assert "what single change would make it fit" in ended.out
    assert max(len(line) for line in ended.out.splitlines()) <= 80


def test_a_failed_request_is_explained_with_0_and_what_is_none_of_the_plans_with_1(meshwright: Run) -> None:
    ended = meshwright("memory", "fixed.toml", "--oom", SCORES, "--json")
    assert ended.code == 0, ended.err
    oom = ended.json()["oom"]
    assert (oom["gpu"], oom["pipeline_rank"], oom["request_bytes"]) == (3, 1, 20 * 2**20)
    assert oom["free_gib"] == pytest.approx(5 / 1024)
    scores = next(one for one in oom["matches"] if one["name"] == "logits in fp32")
    assert (scores["shape"], scores["n_bytes"], scores["pipeline_ranks"]) == ([2, 128, 4096], 4 * 2**20, [1])
    assert (scores["block_bytes"], scores["exact"]) == (20 * 2**20, False)
    text = meshwright("memory", "fixed.toml", "--oom", "4MiB")
    assert text.code == 0
    assert "logits in fp32 [2, 128, 4096] fp32, 4.00 MiB" in " ".join(text.out.split())
    none = meshwright("memory", "fixed.toml", "--oom", "786.00MiB", "--json")
    assert none.code == 1
    assert none.json()["oom"]["matches"] == []
    assert len(none.json()["oom"]["nearest"]) == 3
    assert "matches nothing of this plan" in meshwright("memory", "fixed.toml", "--oom", "786.00MiB").out


@pytest.mark.parametrize("size", ["", "much", "-1MiB", "0", "12 parsecs"])
def test_a_size_that_is_none_is_bad_usage(meshwright: Run, size: str) -> None:
    ended = meshwright("memory", "fixed.toml", f"--oom={size}")
    assert ended.code == 2
    assert ended.out == ""
    assert "--oom" in ended.err
    assert "Traceback" not in ended.err


def test_the_largest_that_fits_is_listed_when_asked_for(meshwright: Run) -> None:
    assert meshwright("memory", "fixed.toml", "--json").json()["fit"] == []
    answer = meshwright("memory", "fixed.toml", "--fit", "--json").json()
    kinds = {(one["kind"], one["safety"]) for one in answer["fit"]}
    assert kinds == {
        (kind, safety)
        for kind in ("micro_batch", "micro_batch of any global batch", "seq_len", "layers", "hidden")
        for safety in ("fits", "tight")
    }
    for one in answer["fit"]:
        assert one["largest"] is None or one["total_gib"] <= answer["limit_gib"]
    text = meshwright("memory", "fixed.toml", "--fit").out
    assert "sequence, tokens" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_without_torch_a_trace_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_parts, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"meshwright\[train\]"):
        traced_parts.traced_parts(None, lambda line: None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_traced_states_are_the_predicted_ones(meshwright: Run, folder: Path) -> None:
    pytest.importorskip("torch", reason="training needs meshwright[train]")
    ended = meshwright("memory", "fixed.toml", "--traced", "--json")
    assert ended.code == 0, ended.err
    traced = ended.json()["traced"]
    assert {one["mode"] for one in traced} == {"traced, CPU kernels"}
    assert traced[-1]["pipeline_rank"] == 1
    for one in traced:
        # AdamW's step counts, 4 bytes a tensor, are the only states that no prediction counts.
        assert one["states_gib"] - one["predicted_states_gib"] == pytest.approx(0, abs=1e3 / 2**30)
        sent = {c["kind"]: c["count"] for c in one["collectives"] if c["group"] == "pp"}
        assert sent == {"send": 4, "receive": 4}  # four micro-batches of one replica: one each, either way
    assert "traced, CPU kernels" in meshwright("memory", "fixed.toml", "--traced").out
