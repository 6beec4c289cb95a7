"""How tensor parallelism splits a parameter, told by its name inside the trainer alone (Shoeybi et al. 2019).

Inside, every family has the names of Hugging Face's Llama for what all models have (`model.embed_tokens`,
`model.layers.7`, `model.norm`, `lm_head`), its own names inside a layer, matrices as (output, input), and fused
matrices in their parts (`c_attn.q_part`), so that a tensor rank's share of each parameter is one contiguous piece.
"""

PART = "_part"  # ends the name of a piece of a fused matrix
_COLUMN = (
    *("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "c_fc", "query_key_value", "dense_h_to_4h"),
    *(name + PART for name in ("q", "k", "v", "gate", "up")),
)
_ROW = ("o_proj", "down_proj", "c_proj", "dense", "dense_4h_to_h")
_VOCAB = ("embed_tokens", "lm_head")
_AFTER_REDUCTION = ("input_layernorm", "post_attention_layernorm", "norm")


def split_dim(name: str) -> int | None:
    """The dimension of the full parameter that tensor ranks share out, or None when each holds a copy."""
    module, kind = name.split(".")[-2:]
    if module in _COLUMN or module in _VOCAB:
        return 0
    return 1 if module in _ROW and kind == "weight" else None


def gradient_is_partial(name: str, sp: bool) -> bool:
    """Does each tensor rank hold only its part of this copied parameter's gradient, so that a sum is needed?

    Norms inside the heads see only local heads; with sequence parallelism (Korthikanti et al. 2022) whatever works
    on the residual stream sees only local positions.
    """
    module = name.split(".")[-2]
    if module in ("q_norm", "k_norm"):
        return True
    return sp and (module in _AFTER_REDUCTION or (module in _ROW and name.endswith(".bias")))


def bounds(size: int, parts: int, index: int) -> tuple[int, int]:
    """First and one-past-last element of part `index` when `size` is cut into `parts`, as `torch.chunk` cuts."""
    width = -(-size // parts)
    return min(size, index * width), min(size, (index + 1) * width)
