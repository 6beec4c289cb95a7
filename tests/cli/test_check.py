"""`check`: where values come from, warnings that the prediction bears out, the worked example line by line."""

import json
from pathlib import Path
from typing import Any

import pytest

import meshwright

ROOT = Path(__file__).parents[2]
AS_WRITTEN = ROOT / "examples/worked-example/as-written.toml"


def job(folder: Path, model: str, rest: str = "", gpus: int = 8) -> Path:
    path = folder / "job.toml"
    path.write_text(
        f'[model]\n{model}\n[cluster]\ngpu = "A100-40GB-SXM"\ngpus = {gpus}\n[batch]\nglobal = 64\nseq_len = 2048\n'
        f'{rest}\n[search]\nrunnable_by = "any"\n'
    )
    return path


def rules(answer: Any) -> dict[str, Any]:
    return {one["rule"]: one for one in (*answer["problems"], *answer["warnings"])}


def test_fields_say_where_their_values_come_from(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 2, "intermediate_size": 2816, "vocab_size": 32000, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = rules(meshwright.check(job(tmp_path, 'config = "config.json"', "[layout]\ntp = 4")))["kv-heads-divide"]
    assert dict(zip(found["fields"], found["origins"], strict=True)) == {"layout.tp": "user", "model.kv_heads": "file"}


def test_a_default_that_breaks_a_rule_is_named_as_a_default(tmp_path: Path) -> None:
    path = job(tmp_path, 'params = "1B"')
    path.write_text(path.read_text().replace("A100-40GB-SXM", "V100-32GB-SXM"))
    found = rules(meshwright.check(path))["precision"]
    assert dict(zip(found["fields"], found["origins"], strict=True)) == {
        "training.precision": "default", "cluster.gpu": "user",
    }  # fmt: skip


def test_the_origin_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from meshwright.cli.main import run

    path = job(tmp_path, 'params = "1B"')
    path.write_text(path.read_text().replace("A100-40GB-SXM", "V100-32GB-SXM"))
    assert run(["check", str(path)]) == 1
    assert "error training.precision (default), cluster.gpu [precision]" in capsys.readouterr().out


FLAT = "[layout]\ndp = 8\ntp = 1\npp = 1\ncp = 1\n"


def test_a_warning_says_what_is_gained(tmp_path: Path) -> None:
    path = job(tmp_path, 'params = "1B"', FLAT + 'zero = 1\nrecompute = "full"\n')
    path.write_text(path.read_text().replace("seq_len = 2048", "seq_len = 2048\nmicro_batch = 2"))
    found = rules(meshwright.check(path))["needless-recompute"]
    assert "Predicted without it: " in found["message"]
    without = meshwright.predict(path, overrides=["layout.recompute=none"])["step_time_s"]
    now = meshwright.predict(path)["step_time_s"]
    assert f"({1 - without / now:.0%} less)" in found["message"]


def test_what_saves_nothing_is_not_called_waste(tmp_path: Path) -> None:
    """ZeRO-3 of a model that fits, with one micro-batch a step: the gathering hides behind the work."""
    path = job(tmp_path, 'params = "1B"', FLAT + 'zero = 1\nrecompute = "none"\n')
    answer = meshwright.check(path)
    assert answer["valid"]
    assert not {"needless-sharding", "needless-recompute", "bubble"} & set(rules(answer))


def test_d7_sharding_a_model_that_fits_costs_what_is_predicted(tmp_path: Path) -> None:
    path = job(tmp_path, 'params = "1B"', FLAT.replace("8", "4") + "zero = 3\n", gpus=4)
    text = path.read_text().replace("global = 64", "global = 256\nmicro_batch = 2").replace("[search]", "[search]")
    path.write_text(text)
    found = rules(meshwright.check(path))["needless-sharding"]
    assert "32 micro-batches" in found["message"]
    assert "Predicted without it: " in found["message"]


# The worked example, section by section of what it must be told


@pytest.fixture(scope="module")
def told() -> Any:
    return meshwright.check(AS_WRITTEN)


def test_exactly_two_errors(told: Any) -> None:
    assert [one["rule"] for one in told["problems"]] == ["world-size", "batch-equation"]
    world, batch = told["problems"]
    assert "4 stages × 2 GPUs × 2 replicas = 16 GPUs, not 8" in world["message"]
    assert "2 groups × 16 samples × 4 micro-batches = 128, not 256" in batch["message"]
    assert "8 micro-batches give 256" in batch["legal"]
    assert told["valid"] is False


def test_each_legal_neighbour_is_predicted(told: Any) -> None:
    near = [one for one in told["nearby"] if one["kind"] == "neighbour"]
    degrees = {one["layout"].split(", ")[0] for one in near}
    assert degrees == {"tp 2 × pp 4", "dp 2 × pp 4", "dp 2 × tp 2 × pp 2"}
    assert len(told["problems"][0]["legal"]) == len(degrees)
    assert all(one["mode"] == "predicted" and one["step_time_s"] > 0 and one["memory_gib"] > 0 for one in near)
    for one in near:
        replicas = 2 if "dp 2" in one["layout"] else 1
        assert one["micro_batch"] * one["micro_batches"] * replicas == 256


def test_the_model_does_fit_and_plain_data_parallelism_wins(told: Any) -> None:
    said = rules(told)["claim-model-too-large"]["message"]
    assert "4.49 GiB of weights in FP32" in said  # 1.2 B · 4 B = 4.47 GiB
    states = [float(word) for word in said.replace(",", "").split() if word.startswith(("17.", "18.", "20.", "21."))]
    assert states
    assert all(17.5 <= size <= 22 for size in states)
    assert "the model does fit" in said
    plain = min(one["step_time_s"] for one in told["nearby"] if one["kind"] == "plain")
    near = min(one["step_time_s"] for one in told["nearby"] if one["kind"] == "neighbour")
    assert plain < near


@pytest.mark.parametrize(("rule", "words"), [
    ("claim-precision-shrinks-states", "mixed precision does not shrink the states"),
    ("claim-dataset-in-memory", "a data set need not fit in GPU memory"),
    ("claim-layer-too-large", "47.00 MiB in FP32"),  # tens of MB
    ("claim-within-stage", "is not tensor parallelism"),
    ("claim-within-stage", "the two take turns"),
    ("claim-within-stage", "1 : 1.8"),  # about 1 : 2
    ("bubble", "42.9%"),  # 3 of 7
    ("claim-triton-profiler", '"NVIDIA Triton Profiler" is not a product'),
    ("claim-triton-profiler", "Nsight Systems, Triton's Proton and torch.profiler"),
])  # fmt: skip
def test_each_warning_of_the_worked_example(told: Any, rule: str, words: str) -> None:
    assert words in rules(told)[rule]["message"]
    assert rule in {one["rule"] for one in told["warnings"]}


def test_the_corrected_job_has_nothing_to_be_told() -> None:
    answer = meshwright.check(ROOT / "examples/worked-example/job.toml")
    assert (answer["problems"], answer["warnings"]) == ([], [])


@pytest.mark.parametrize("name", ["gemma-3-4b-pt", "deepseek-v3", "meta-llama-3-8b"])
def test_what_is_left_out_of_a_config_is_said(tmp_path: Path, name: str) -> None:
    config = (ROOT / f"tests/model/configs/{name}.json").read_text()
    (tmp_path / "config.json").write_text(config)
    path = job(tmp_path, 'config = "config.json"', gpus=256)
    path.write_text(path.read_text().replace("gpus = 256", 'gpus = 256\ninter_node = "ib-hdr"'))
    model = meshwright.check(path)["model"]
    expected = {"gemma-3-4b-pt": "text decoder", "deepseek-v3": "multi-token", "meta-llama-3-8b": ""}[name]
    assert expected in model["note"]
    assert bool(model["note"]) == bool(expected)


def test_a_proposed_shape_is_shown(tmp_path: Path) -> None:
    model = meshwright.check(job(tmp_path, 'params = "1.2B"'))["model"]
    assert "layers of width" in model["text"]
    assert model["parameters"] == pytest.approx(1.2e9, rel=0.02)
