"""Jobs become setups: models, clusters, stages, claims, and where each value came from."""

import json
import tomllib
from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import GIB
from meshwright.files.job import parse_job
from meshwright.files.resolve import read_setup, resolved, resolved_text, setup_name, setup_of

CATALOGUE = """
[model]
layers = 2
hidden = 64
heads = 4
vocab = 512
[cluster]
gpu = "A100-40GB-SXM"
gpus = 16
gpus_per_node = 8
inter_node = 25
[batch]
global = 8
seq_len = 32
"""


def fields(text: str, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        setup_of(parse_job(text, overrides=overrides))
    return [c.field for c in caught.value.complaints]


def test_plain_dimensions_and_their_defaults() -> None:
    arch = setup_of(parse_job(CATALOGUE)).proposal.arch
    assert (arch.kv_heads, arch.head_dim, arch.ffn_hidden) == (4, 16, 192)  # 8/3 * 64 rounded up to 64s
    assert arch.family == "plain"


def test_ungated_networks_are_four_times_as_wide() -> None:
    assert setup_of(parse_job(CATALOGUE, overrides=["model.gated=false"])).proposal.arch.ffn_hidden == 256


def test_contradicting_dimensions() -> None:
    assert fields(CATALOGUE, "model.heads=5", "model.kv_heads=3") == ["model.heads", "model.kv_heads"]
    assert fields(CATALOGUE, "model.experts=4") == ["model.active_experts"]
    assert fields(CATALOGUE, "model.experts=4", "model.active_experts=8") == ["model.active_experts"]
    assert fields(CATALOGUE, "model.positions=learned") == ["model.max_positions"]


def test_catalogue_cluster() -> None:
    cluster = setup_of(parse_job(CATALOGUE)).proposal.cluster
    assert (cluster.gpus, cluster.nodes, cluster.local) == (16, 2, False)
    assert cluster.intra.name == "nvlink3"  # what the board has
    assert cluster.inter.bytes_per_s.value == pytest.approx(25e9)
    assert cluster.memory_bytes == cluster.device.memory_bytes


def test_memory_override() -> None:
    cluster = setup_of(parse_job(CATALOGUE, overrides=["cluster.memory_gib=12.5"])).proposal.cluster
    assert cluster.memory_bytes == 12.5 * GIB


def test_complaints_of_model_and_cluster_come_together() -> None:
    text = CATALOGUE.replace('gpu = "A100-40GB-SXM"', 'gpu = "A1000"').replace("heads = 4", "heads = 5")
    assert fields(text) == ["model.heads", "cluster.gpu"]


def test_link_between_nodes_is_never_guessed() -> None:
    assert fields(CATALOGUE.replace("inter_node = 25\n", "")) == ["cluster.inter_node"]


def test_one_node_needs_no_link_between_nodes() -> None:
    assert setup_of(parse_job(CATALOGUE.replace("inter_node = 25\n", ""), overrides=["cluster.gpus=8"]))


def test_catalogue_devices_need_a_number() -> None:
    assert fields(CATALOGUE.replace("gpus = 16\n", "")) == ["cluster.gpus"]


def test_stages_are_expanded_and_unknown_units_named() -> None:
    stages = "layout.stages=[['embed', 'layers.0'], ['layers.1.attn'], ['layers.1.ffn', 'head']]"
    wanted = setup_of(parse_job(CATALOGUE, overrides=[stages])).proposal.wanted
    assert wanted.stages == (("embed", "layers.0.attn", "layers.0.ffn"), ("layers.1.attn",), ("layers.1.ffn", "head"))
    assert fields(CATALOGUE, "layout.stages=[['embed'], ['layers.0-7']]") == ["layout.stages[1]"]


def test_claims_become_text() -> None:
    overrides = ["claims.model_exceeds_one_gpu=true", "claims.within_stage=attention | feed-forward"]
    claims = setup_of(parse_job(CATALOGUE, overrides=overrides)).proposal.claims
    assert claims == {"model_exceeds_one_gpu": "true", "within_stage": "attention | feed-forward"}


def test_tune_may_change_only_keys_of_the_layout() -> None:
    setup = setup_of(parse_job(CATALOGUE, overrides=["tune.change=['layout.stages', 'micro_batch']"]))
    assert setup.tune.change == ("stages", "micro_batch")
    assert fields(CATALOGUE, "tune.change=['stage']") == ["tune.change[0]"]


def test_paths_start_at_the_job(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    job = "[model]\nconfig = 'config.json'\n[data]\npath = 'texts'\n" + CATALOGUE[CATALOGUE.index("[cluster]") :]
    (tmp_path / "small.toml").write_text(job)
    setup = read_setup(tmp_path / "small.toml")
    assert (setup.proposal.arch.layers, setup.proposal.arch.kv_heads, setup.name) == (3, 2, "small")
    assert setup.data.path == str(tmp_path / "texts")


def test_missing_config_is_a_complaint_about_that_key(tmp_path: Path) -> None:
    job = "[model]\nconfig = 'nowhere.json'\n" + CATALOGUE[CATALOGUE.index("[cluster]") :]
    with pytest.raises(InputError) as caught:
        setup_of(parse_job(job, tmp_path / "job.toml"))
    assert caught.value.complaints[0].field == "model.config"


@pytest.mark.parametrize("count", ["1.2X", "many", "0"])
def test_counts_that_cannot_be_read(count: str) -> None:
    text = f"[model]\nparams = '{count}'\n" + CATALOGUE[CATALOGUE.index("[cluster]") :]
    assert fields(text) == ["model.params"]


def test_names() -> None:
    assert setup_name(Path("a/uneven.toml")) == "uneven"
    assert setup_name(Path("/x/laptop/job.toml")) == "laptop"
    assert setup_name(Path("/x/run-1/plan.toml")) == "run-1"
    assert setup_name(None) == "job"


def test_origins_are_printed_beside_every_value() -> None:
    job = parse_job(CATALOGUE, overrides=["layout.tp=2"])
    rows = resolved(job)
    assert rows["layout.tp"] == (2, "user")
    assert rows["cluster.intra_node"] == ("nvlink3", "default")
    assert rows["training.optimizer"] == ("adamw", "default")
    assert rows["layout.pp"] == (None, "default")
    text = resolved_text(job)
    assert any(line.startswith("tp = 2 ") and line.endswith("# user") for line in text.splitlines())
    assert tomllib.loads(text)["cluster"]["gpus"] == 16


def test_sizes_of_a_proposed_model_are_shown_as_derived() -> None:
    text = "[model]\nparams = '100M'\n" + CATALOGUE[CATALOGUE.index("[cluster]") :]
    printed = resolved_text(parse_job(text))
    assert any(line.startswith("# layers = ") and line.endswith("# default") for line in printed.splitlines())
    assert tomllib.loads(printed)["model"] == {"params": "100M"}
