"""Activation bytes against what autograd really keeps of one layer of the families' own modules."""

from typing import Any

import pytest

from meshwright.model.activations import unit_activation_bytes
from meshwright.model.huggingface import architecture_of
from meshwright.model.training import Training
from meshwright.model.units import units_of

BATCH, SEQ = 2, 256
BASE = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 8,
        "intermediate_size": 384, "vocab_size": 111}  # fmt: skip
GPT2 = {"n_embd": 128, "n_layer": 3, "n_head": 8, "vocab_size": 111, "n_positions": 300, "resid_pdrop": 0,
        "attn_pdrop": 0, "embd_pdrop": 0, "activation_function": "gelu"}  # fmt: skip
ROUTED = {"moe_intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 3}
MLA = {"kv_lora_rank": 96, "q_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
       "moe_intermediate_size": 96, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2,
       "n_group": 1, "topk_group": 1}  # fmt: skip
# values a token that these modules keep on this device beside the tensors counted: v is a view of the restored keys
# and values, so that nope stays (8 heads of 16), and the attention's result is copied into another layout (8 of 24)
MLA_VIEWS = 8 * 16 + 8 * 24

CASES: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "llama": ("LlamaConfig", BASE, "fp32", 0),
    "llama in half precision": ("LlamaConfig", BASE, "bf16", 0),
    "qwen3": ("Qwen3Config", BASE | {"head_dim": 32}, "fp32", 0),
    "gemma3": ("Gemma3TextConfig", BASE | {"head_dim": 16}, "fp32", 0),
    "gpt2": ("GPT2Config", GPT2, "fp32", 0),
    "olmo2": ("Olmo2Config", BASE | {"eos_token_id": 2}, "fp32", 0),
    "mixtral": ("MixtralConfig", BASE | {"num_local_experts": 4, "num_experts_per_tok": 2}, "fp32", 0),
    "qwen2_moe": ("Qwen2MoeConfig", BASE | ROUTED | {"shared_expert_intermediate_size": 160}, "fp32", 0),
    "a dense layer of qwen3_moe": (
        "Qwen3MoeConfig", BASE | ROUTED | {"head_dim": 16, "mlp_only_layers": [1]}, "fp32", 0,
    ),
    "a dense layer of llama4": (
        "Llama4TextConfig",
        BASE | {"intermediate_size_mlp": 256, "num_local_experts": 4, "num_experts_per_tok": 1, "head_dim": 16,
                "moe_layers": [0], "pad_token_id": 0},
        "fp32", 0,
    ),
    "deepseek_v3": ("DeepseekV3Config", BASE | MLA | {"first_k_dense_replace": 1}, "fp32", MLA_VIEWS),
    "a dense layer of deepseek_v2": (
        "DeepseekV2Config", BASE | MLA | {"first_k_dense_replace": 2, "topk_method": "greedy"}, "fp32", MLA_VIEWS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_autograd_saves_what_is_counted(case: str) -> None:
    """Every storage that autograd keeps of the second layer, but for norms' statistics and the router's lists."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    class_name, settings, precision, views = CASES[case]
    config = getattr(transformers, class_name)(**settings)
    arch = architecture_of(config.to_dict())
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    if arch.experts and arch.family != "llama4_text":  # which has but one way
        model.set_experts_implementation("grouped_mm")
    model.to(torch.bfloat16 if precision == "bf16" else torch.float32)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, Any] = {}
    ends: list[int] = []

    def keep(tensor: Any) -> Any:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    for layer in model.model.layers if hasattr(model, "model") else model.transformer.h:
        layer.register_forward_hook(lambda *_: ends.append(len(kept)))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.randint(0, arch.vocab, (BATCH, SEQ)), use_cache=False)
    real = sum(tensor.untyped_storage().nbytes() for tensor in list(kept.values())[ends[0] : ends[1]])
    recipe = Training(precision=precision)  # type: ignore[arg-type]
    second = [unit for unit in units_of(arch) if unit.layer == 1]
    counted = sum(unit_activation_bytes(arch, unit, recipe, BATCH, SEQ, eager_norms=True) for unit in second)
    assert real == pytest.approx(counted + 4 * views * BATCH * SEQ, rel=0.015)
