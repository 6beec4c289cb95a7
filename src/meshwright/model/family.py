"""What one row of the table of families says, and the spellings that many families share.

`sizes` maps a field of `Architecture` to the keys that may hold it (the first one present counts; required unless
`defaults` has a value for when all are absent). `optional` maps a field to (key, value when the key is absent or
null). `fixed` are values of the family itself. `only` lists, for a key ("outer.inner" for a nested one), the values
under which the shape is one that `Architecture` can state; absent is fine. `derived` computes fields from the whole
config where a key alone does not say it, and is called only when every size and every key in `reads` is sound:
`reads` says for each of those what it must be when it is there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Config = Mapping[str, Any]
# a number from 0 or from 1 on, a switch, a list of layer numbers, or one entry for each layer: 0 / 1, or its attention
Reads = Literal["count", "step", "switch", "layers", "flags", "types"]

TYPES = ("full_attention", "sliding_attention", "chunked_attention")


@dataclass(frozen=True, slots=True)
class Family:
    """How one `model_type` spells its shape."""

    sizes: Mapping[str, tuple[str, ...]]
    optional: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    defaults: Mapping[str, int] = field(default_factory=dict)
    reads: Mapping[str, Reads] = field(default_factory=dict)
    derived: Callable[[Config], Mapping[str, Any]] | None = None


SIZES = {
    "layers": ("num_hidden_layers",), "hidden": ("hidden_size",), "heads": ("num_attention_heads",),
    "ffn_hidden": ("intermediate_size",), "vocab": ("vocab_size",),
}  # fmt: skip
GROUPED: dict[str, tuple[str, Any]] = {"kv_heads": ("num_key_value_heads", None), "head_dim": ("head_dim", None)}
UNTIED: dict[str, tuple[str, Any]] = {"tied": ("tie_word_embeddings", False)}
TIED: dict[str, tuple[str, Any]] = {"tied": ("tie_word_embeddings", True)}
BIASED = {"norm": "layer", "gated": False, "qkv_bias": True, "attention_out_bias": True, "ffn_bias": True}
ATTENTION_BIAS: dict[str, tuple[str, Any]] = {
    "qkv_bias": ("attention_bias", False), "attention_out_bias": ("attention_bias", False),
}  # fmt: skip
WINDOW: dict[str, tuple[str, Any]] = {"sliding_window": ("sliding_window", None)}
SWITCHED_WINDOW: dict[str, Reads] = {
    "sliding_window": "count", "use_sliding_window": "switch", "max_window_layers": "count", "layer_types": "types",
}  # fmt: skip


def given(config: Config, key: str, default: Any) -> Any:
    """The value of a key, or `default` when it is absent or null."""
    value = config.get(key)
    return default if value is None else value


def layers_in(config: Config) -> int:
    """How many layers, for families that spell it as most do."""
    return int(config["num_hidden_layers"])


def windows(window: int | None, local: Sequence[bool]) -> dict[str, Any]:
    """Fields for a window of that width on the layers marked `local`; 0 and None are no window."""
    if not window or not any(local):
        return {"sliding_window": None}
    layers = () if all(local) else tuple(layer for layer, here in enumerate(local) if not here)
    return {"sliding_window": int(window), "global_layers": layers}


def types_or(config: Config, local: Callable[[int], bool]) -> list[bool]:
    """Which layers look back only so far: as `layer_types` says, else as `local` of the layer's number does."""
    types = config.get("layer_types")
    if types is not None:
        return [kind != "full_attention" for kind in types]
    return [local(layer) for layer in range(layers_in(config))]


def switched_window(config: Config) -> Mapping[str, Any]:
    """Qwen 2 and 3: a window where `use_sliding_window` says so, on the layers from `max_window_layers` (28) on."""
    if not config.get("use_sliding_window"):
        return {"sliding_window": None}
    first = given(config, "max_window_layers", 28)
    return windows(config.get("sliding_window", 4096), types_or(config, lambda layer: layer >= first))


def alternating(default: int | None, every: int, key: str = "") -> Callable[[Config], Mapping[str, Any]]:
    """A window of `sliding_window` (absent: `default`) on all layers but each `every`-th, or as `key` says how many."""

    def derive(config: Config) -> Mapping[str, Any]:
        period = config.get(key) or every
        return windows(config.get("sliding_window", default), types_or(config, lambda layer: (layer + 1) % period != 0))

    return derive
