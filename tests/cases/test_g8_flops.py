"""G8: FLOPs counted from the real matrices, not from a formula for another model."""

from dataclasses import replace
from typing import Any

import pytest

from meshwright.model.catalogue import named
from meshwright.model.flops import CONVENTION, matmul_flops_per_token, step_model_flops, unit_forward_flops
from meshwright.model.huggingface import architecture_of
from meshwright.model.units import units_of

SEQ = 4096


def test_g8_a_gated_network_has_three_matrices_of_its_own_width() -> None:
    llama = named("llama-2-7b")
    ffn = units_of(llama)[2]
    assert matmul_flops_per_token(llama, ffn) == 2 * 3 * 4096 * 11008
    assert matmul_flops_per_token(llama, ffn) != 2 * 2 * 4096 * 4 * 4096  # what an ungated 4h network would need


def test_g8_grouped_heads_shrink_keys_and_values_alone() -> None:
    attn = units_of(named("llama-3-8b"))[1]
    assert matmul_flops_per_token(named("llama-3-8b"), attn) == 2 * 4096 * (2 * 4096 + 2 * 8 * 128)


def test_g8_of_eight_experts_two_count() -> None:
    """287.8 against 80.0 TFLOP: 3.6 times, because attention and head are shared; the experts alone 4 times."""
    sparse = named("mixtral-8x7b")
    dense = replace(sparse, active_experts=8)
    ratio = step_model_flops(dense, SEQ, SEQ, causal=False) / step_model_flops(sparse, SEQ, SEQ, causal=False)
    assert ratio == pytest.approx(287.8 / 80.0, rel=0.05)
    ffn, router = units_of(sparse)[2], 2 * 8 * 4096
    assert (matmul_flops_per_token(dense, ffn) - router) / (matmul_flops_per_token(sparse, ffn) - router) == 4


def test_g8_the_convention_is_stated_and_kept() -> None:
    arch = named("llama-3-8b")
    embed, attn, *_, head = units_of(arch)
    assert unit_forward_flops(arch, embed, 1, SEQ) == 0
    assert unit_forward_flops(arch, head, 1, SEQ) == 2 * 128256 * 4096
    full, half = (unit_forward_flops(arch, attn, 1, SEQ, causal) for causal in (False, True))
    assert full - half == 4 * 32 * 128 * SEQ / 2
    assert all(word in CONVENTION for word in ("causal", "top-k", "embedding", "recompute"))


TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "gated": ("LlamaConfig", {"num_key_value_heads": 4}),
    "grouped": ("LlamaConfig", {"num_key_value_heads": 2}),
    "ungated": ("OPTConfig", {"ffn_dim": 256, "max_position_embeddings": 64, "word_embed_proj_dim": 64}),
    "experts": ("MixtralConfig", {"num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2}),
}


@pytest.mark.parametrize("kind", TINY)
def test_g8_equal_to_the_products_of_a_forward_on_this_machine(kind: str) -> None:
    """Every product is counted by its own shapes as the forward runs; an unmasked kernel multiplies all s² pairs."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.overrides import TorchFunctionMode

    class Products(TorchFunctionMode):
        flops = 0

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function in (torch.nn.functional.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
                one, two = args[:2]
                columns = two.shape[0] if function is torch.nn.functional.linear else two.shape[-1]
                self.flops += 2 * one.numel() * columns
            return function(*args, **(kwargs or {}))

    class_name, settings = TINY[kind]
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
    if kind != "ungated":
        sizes |= {"intermediate_size": 96}
    config = getattr(transformers, class_name)(**sizes, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    if kind == "experts":
        model.set_experts_implementation("eager")
    arch = architecture_of(config.to_dict())
    with torch.no_grad(), Products() as counted:
        model(torch.randint(0, 99, (2, 16)), use_cache=False)
    ours = sum(unit_forward_flops(arch, unit, 32, 16, causal=False) for unit in units_of(arch))
    assert ours == counted.flops
