"""The decoder: its arithmetic against Hugging Face's, its names, and what a stage holds."""

from dataclasses import replace

import pytest
import torch

from meshwright.model.shapes import tensors_of
from meshwright.model.units import units_of
from meshwright.trainer.clock import Clock
from meshwright.trainer.models.decoder import Decoder, build
from meshwright.trainer.models.families import Numerics, numerics
from meshwright.trainer.models.initial import draw, global_shape, initialize, materialize, share
from meshwright.trainer.models.names import bounds, gradient_is_partial, split_dim
from meshwright.trainer.parallel.groups import Group, alone
from meshwright.trainer.parallel.tensor_parallel import TensorGroup
from meshwright.trainer.spans import SpanRecorder

from .plans import TINY, variant

CPU = torch.device("cpu")


def tensor_group(size: int = 1, rank: int = 0) -> TensorGroup:
    """A tensor group that never communicates: enough to build one rank's share."""
    group = alone() if size == 1 else Group(None, tuple(range(size)), rank)
    return TensorGroup(group, Clock(SpanRecorder(0)))


def whole(arch=TINY, rules: Numerics | None = None) -> Decoder:
    return build(arch, rules or numerics(arch), tensor_group(), [unit.name for unit in units_of(arch)])


def reference(kind: str, **config):
    """A Hugging Face model with random weights, in the tiny model's shape."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6, "use_cache": False, "attn_implementation": "sdpa",
    }  # fmt: skip
    torch.manual_seed(0)
    made = transformers.AutoConfig.for_model(kind, **{**sizes, **config})
    return transformers.AutoModelForCausalLM.from_config(made).float()


BIASED = variant(attention_out_bias=True, qkv_bias=True, ffn_bias=True)
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "arch", "config"),
    [
        ("llama", TINY, {}),
        ("llama", variant(tied=True), {"tie_word_embeddings": True}),
        ("llama", BIASED, {"attention_bias": True, "mlp_bias": True}),
        ("llama", TINY, {"rope_parameters": {"rope_theta": 10_000.0, **SCALED}}),
        ("mistral", variant(family="mistral"), {"sliding_window": None}),
        ("qwen2", variant(family="qwen2", qkv_bias=True), {}),
        ("qwen3", variant(family="qwen3", qk_norm=True), {}),
    ],
    ids=["llama", "tied", "biases", "llama3 rope", "mistral", "qwen2", "qwen3"],
)  # fmt: skip
def test_same_logits_loss_and_gradients_as_transformers(kind, arch, config, tmp_path) -> None:
    theirs = reference(kind, **config)
    for name, parameter in theirs.named_parameters():  # biases and norms are drawn too: zeros and ones hide mistakes
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.5, 0.2)
        assert split_dim(name) in (0, 1, None)
    theirs.config.save_pretrained(tmp_path)
    ours = whole(arch, numerics(replace(arch, config_path=str(tmp_path))))
    weights = theirs.state_dict()
    materialize(ours, CPU, lambda name, shape: weights[name])
    assert {name for name, _ in ours.named_parameters()} == {name for name, _ in theirs.named_parameters()}
    tokens = torch.randint(0, 256, (2, 33), generator=torch.Generator().manual_seed(1))
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    expected = theirs(input_ids=inputs).logits
    torch.testing.assert_close(ours(inputs), expected, rtol=1e-5, atol=1e-6)
    loss = ours(inputs, labels)
    their_loss = torch.nn.functional.cross_entropy(expected.flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(loss, their_loss, rtol=1e-6, atol=0)
    loss.backward()
    their_loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-4, msg=name)


def test_stages_compose_to_the_whole_model() -> None:
    """Also when a boundary falls inside a layer: the absent half adds nothing and names keep the layer's number."""
    names = [unit.name for unit in units_of(TINY)]
    model = whole()
    initialize(model, CPU, seed=3)
    tokens = torch.arange(64).view(2, 32)
    x = tokens
    found: set[str] = set()
    for first, last in ((0, 2), (2, 5), (5, 6), (6, 10)):
        stage = build(TINY, numerics(TINY), tensor_group(), names[first:last])
        initialize(stage, CPU, seed=3)
        held = {name for name, _ in stage.named_parameters()}
        assert not held & found
        found |= held
        x = stage(x)
    assert found == {name for name, _ in model.named_parameters()}
    torch.testing.assert_close(x, model(tokens), rtol=0, atol=0)


def test_48_layers_on_two_stages_keep_all_names() -> None:
    """Case E12: no stage calls its first layer 0."""
    arch = variant(layers=48)
    names = [unit.name for unit in units_of(arch)]
    halves = [build(arch, numerics(arch), tensor_group(), part) for part in (names[:49], names[49:])]
    held = [name for half in halves for name, _ in half.named_parameters()]
    assert sorted(held) == sorted(name for name, _ in whole(arch).named_parameters())


def test_labels_below_zero_do_not_count() -> None:
    model = whole()
    initialize(model, CPU, seed=0)
    tokens = torch.arange(64).view(2, 32)
    labels = tokens.clone()
    labels[:, 16:] = -1
    half = model(tokens, labels)
    short = model(tokens[:, :16], tokens[:, :16])
    torch.testing.assert_close(half, short, rtol=1e-5, atol=0)


@pytest.mark.parametrize("vocab", [256, 255])
def test_shares_of_all_tensor_ranks_make_up_each_parameter(vocab: int) -> None:
    arch = variant(vocab=vocab, qkv_bias=True, qk_norm=True, attention_out_bias=True, ffn_bias=True)
    names = [unit.name for unit in units_of(arch)]
    shares = [build(arch, numerics(arch), tensor_group(2, rank), names) for rank in range(2)]
    parts = [dict(model.named_parameters()) for model in shares]
    for name, parameter in whole(arch).named_parameters():
        shape = global_shape(parts[0][name], name, arch, tensor_group(2, 0))
        assert shape == tuple(parameter.shape)
        full = draw(name, shape, seed=0, std=0.02)
        cut = [share(full, name, tensor_group(2, rank)) for rank in range(2)]
        assert [c.shape for c in cut] == [part[name].shape for part in parts]
        dim = split_dim(name)
        rebuilt = cut[0] if dim is None else torch.cat(cut, dim)
        torch.testing.assert_close(rebuilt, full, rtol=0, atol=0)


def test_initial_weights_depend_on_seed_and_name_alone() -> None:
    name = "model.layers.3.mlp.up_proj.weight"
    first = draw(name, (176, 64), seed=0, std=0.02)
    assert torch.equal(first, draw(name, (176, 64), seed=0, std=0.02))
    assert not torch.equal(first, draw(name, (176, 64), seed=1, std=0.02))
    assert not torch.equal(first, draw(name.replace("3", "2"), (176, 64), seed=0, std=0.02))
    assert 0.019 < first.std() < 0.021
    assert torch.equal(draw("model.norm.weight", (64,), 0, 0.02), torch.ones(64))


def test_bounds_cut_as_torch_chunk_cuts() -> None:
    for size, parts in ((255, 2), (10, 4), (7, 3), (8, 8)):
        chunks = torch.arange(size).chunk(parts)
        for index, chunk in enumerate(chunks):
            first, last = bounds(size, parts, index)
            assert (first, last) == (int(chunk[0]), int(chunk[-1]) + 1)
        assert bounds(size, parts, parts - 1)[1] == size


def test_which_copies_hold_part_of_a_gradient() -> None:
    """Case E5: norms on the residual stream under sequence parallelism, norms inside heads always."""
    layer = "model.layers.0."
    assert gradient_is_partial(layer + "self_attn.q_norm.weight", sp=False)
    assert not gradient_is_partial(layer + "input_layernorm.weight", sp=False)
    for name in (layer + "input_layernorm.weight", "model.norm.weight", layer + "mlp.down_proj.bias"):
        assert gradient_is_partial(name, sp=True)
    assert not gradient_is_partial(layer + "mlp.down_proj.weight", sp=True)
    assert not gradient_is_partial(layer + "mlp.up_proj.bias", sp=True)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("arch", [TINY, variant(tied=True), BIASED, variant(qk_norm=True, vocab=255)])
def test_each_unit_holds_the_tensors_that_planner_and_predictor_count(arch, tp: int) -> None:
    """The shapes in `model/shapes.py` are the truth; rank 0 holds the most where shares differ."""
    for unit in units_of(arch):
        held = build(arch, numerics(arch), tensor_group(tp), [unit.name])
        counted = [tensor.local_size(tp) for tensor in tensors_of(arch, unit)]
        assert sorted(parameter.numel() for parameter in held.parameters()) == sorted(counted), unit.name
        for name, parameter in held.named_parameters():
            whole_shape = global_shape(parameter, name, arch, tensor_group(tp))
            splits = {(tensor.shape, tensor.split is not None) for tensor in tensors_of(arch, unit)}
            assert (whole_shape, split_dim(name) is not None) in splits, name
