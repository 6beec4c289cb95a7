"""The table of families fails loudly, and rotary frequencies follow the published rules."""

import json
import math
from dataclasses import replace

import pytest

from meshwright.basics.errors import InputError
from meshwright.model.architecture import LatentAttention
from meshwright.trainer.models.families import FAMILIES, complaints, decoder_complaints, inverse_frequencies, numerics
from meshwright.trainer.unsupported import unsupported

from .plans import TINY, plan, variant


def test_unknown_family_names_those_that_can_be_trained() -> None:
    with pytest.raises(InputError) as caught:
        numerics(variant(family="lama"))
    said = str(caught.value)
    assert "did you mean 'llama'?" in said
    assert all(family in said for family in FAMILIES)


def test_every_feature_out_of_reach_is_listed_at_once() -> None:
    wrong = variant(
        family="falcon", experts=8, active_experts=2, gated=False, norm="layer", positions="alibi",
        parallel_residual=True, sliding_window=128, chunked=True, head_dim=15, layer_norms=1, embed_norm=True,
    )  # fmt: skip
    fields = {complaint.field.removeprefix("model.") for complaint in decoder_complaints(wrong)}
    assert fields == {
        "family", "experts", "gated", "norm", "positions", "parallel_residual", "chunked", "head_dim",
        "layer_norms", "embed_norm",
    }  # fmt: skip
    assert complaints(TINY) == ()


def test_parts_that_the_decoder_lacks_are_refused() -> None:
    latent = LatentAttention(8, 8, 8, 8)
    wrong = variant(latent=latent, sinks=True, qk_norm=True, qk_norm_wide=True, qk_norm_weight=False, head_bias=True)
    fields = {complaint.field.removeprefix("model.") for complaint in decoder_complaints(wrong)}
    assert fields == {"latent", "sinks", "qk_norm_wide", "qk_norm_weight", "head_bias"}


def test_of_several_parts_the_text_decoders_numbers_count(tmp_path) -> None:
    inner = {"model_type": "llama", "rope_theta": 5e5, "rms_norm_eps": 1e-5}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava", "rope_theta": 1.0, "text_config": inner}))
    rules = numerics(variant(config_path=str(tmp_path)))
    assert (rules.rope_theta, rules.norm_eps) == (5e5, 1e-5)


def test_config_overrides_the_familys_defaults(tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"rope_theta": 5e5, "rms_norm_eps": 1e-5}))
    rules = numerics(variant(config_path=str(tmp_path)))
    assert (rules.rope_theta, rules.norm_eps, rules.initializer_range) == (5e5, 1e-5, 0.02)
    (tmp_path / "config.json").write_text(json.dumps({"rope_scaling": {"rope_type": "yarn", "factor": 4}}))
    with pytest.raises(InputError, match="yarn"):
        numerics(variant(config_path=str(tmp_path)))


def test_plain_rotary_frequencies() -> None:
    found = inverse_frequencies(64, numerics(TINY))
    assert found[0] == 1.0
    assert math.isclose(found[-1], 10_000 ** (-62 / 64))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hidden_act": "laplace"}, "hidden_act = laplace: the trainer's feed-forward network is SwiGLU"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps = 'small': must be a number above 0"),
        ({"rope_theta": float("inf")}, "rope_theta = inf: must be a number above 0"),
        ({"initializer_range": -1}, "initializer_range = -1: must be a number above 0"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling = yarn"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "low_freq_factor = None: must be a number above 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_config_asks_for_beyond_its_sizes_is_refused_before_the_start(tmp_path, config: dict, said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = plan()
    proposal = replace(asked.setup.proposal, arch=variant(config_path=str(tmp_path)))
    refused = unsupported(replace(asked, setup=replace(asked.setup, proposal=proposal)))
    assert said in "\n".join(map(str, refused))


def test_silence_of_a_config_means_the_familys_defaults(tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"rope_theta": None, "hidden_act": None, "rms_norm_eps": None}))
    assert numerics(variant(config_path=str(tmp_path))) == numerics(variant())
