"""What the table [model] can say: dimensions, names and files end in the same architecture, and come back unchanged."""

import json
from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.files.job import parse_job
from meshwright.files.model_of import model_of
from meshwright.files.plan_toml import parse_plan, plan_of, plan_text
from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.model.catalogue import model_names, named
from meshwright.model.parameters import total_parameters

AROUND = """
[model]
{model}
[cluster]
gpu = "H100-80GB-SXM"
gpus = 8
[batch]
global = 8
seq_len = 2048
micro_batch = 1
[layout]
dp = 8
tp = 1
pp = 1
"""


def model(text: str) -> Architecture:
    return model_of(parse_job(AROUND.format(model=text)))


@pytest.mark.parametrize("name", model_names())
def test_a_plan_of_every_public_model_reads_back_equal(name: str) -> None:
    plan = plan_of(parse_job(AROUND.format(model=f'name = "{name}"')))
    text = plan_text(plan)
    assert "layers = " in text  # the shape itself, not the name alone
    assert parse_plan(text).setup.proposal.arch == plan.setup.proposal.arch == named(name)


def test_plain_dimensions_can_state_a_model_with_latent_attention_and_experts() -> None:
    text = """layers = 61
hidden = 7168
heads = 128
ffn_hidden = 2048
vocab = 129280
experts = 256
active_experts = 8
shared_experts = 1
dense_layers = [0, 1, 2]
dense_ffn_hidden = 18432
latent = {kv_rank = 512, nope_dim = 128, rope_dim = 64, value_dim = 128, query_rank = 1536}"""
    found = model(text)
    assert found.latent == LatentAttention(512, 128, 64, 128, 1536)
    assert (found.head_dim, found.kv_heads) == (192, 128)
    assert total_parameters(found) == total_parameters(named("deepseek-v3"))


def complaints(text: str) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        model(text)
    return {complaint.field: complaint.rule for complaint in caught.value.complaints}


PLAIN = "layers = 4\nhidden = 64\nheads = 8\nvocab = 512\n"


def test_dimensions_that_mean_nothing_without_others_are_all_named() -> None:
    found = complaints(PLAIN + "dense_layers = [0]\nglobal_layers = [1, 4]\nshared_gate = true\nchunked = true\n")
    assert set(found) == {"model.dense_layers", "model.global_layers", "model.shared_gate", "model.chunked"}
    assert "without model.experts" in found["model.dense_layers"]


def test_layers_beyond_the_last_are_named() -> None:
    found = complaints(PLAIN + "experts = 4\nactive_experts = 2\ndense_layers = [0, 4, 7]\n")
    assert found == {"model.dense_layers": "the model has layers 0 to 3"}


def test_latent_attention_has_no_groups() -> None:
    latent = "latent = {kv_rank = 8, nope_dim = 8, rope_dim = 4, value_dim = 8}\n"
    assert model(PLAIN + latent).latent is not None
    assert set(complaints(PLAIN + "kv_heads = 2\n" + latent)) == {"model.kv_heads"}
    assert set(complaints(PLAIN + latent.replace("8", "-8"))) == {
        "model.latent.kv_rank", "model.latent.nope_dim", "model.latent.value_dim",
    }  # fmt: skip


def test_the_text_part_of_a_file_keeps_its_note(tmp_path: Path) -> None:
    inner = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "intermediate_size": 96, "vocab_size": 111}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": inner}))
    assert "text_config" in model(f'config = "{tmp_path}"').note
