"""Is a shape one that can exist? Every complaint at once, in the reader's own spelling."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from meshwright.basics.errors import Complaint

# (smallest, largest) of each size; the largest are an order above anything published
LIMITS: Mapping[str, tuple[int, int]] = {
    "layers": (1, 10_000), "hidden": (1, 1_000_000), "heads": (1, 100_000), "kv_heads": (1, 100_000),
    "head_dim": (1, 100_000), "ffn_hidden": (1, 10_000_000), "vocab": (1, 100_000_000), "experts": (0, 100_000),
    "active_experts": (0, 100_000), "shared_experts": (0, 10_000), "max_positions": (0, 1_000_000_000),
    "sliding_window": (1, 1_000_000_000), "layer_norms": (1, 4), "dense_ffn_hidden": (0, 10_000_000),
    "shared_ffn_hidden": (0, 10_000_000),
}  # fmt: skip
LATENT_LIMITS: Mapping[str, tuple[int, int]] = {
    f"latent.{width}": (1, 1_000_000) for width in ("kv_rank", "nope_dim", "rope_dim", "value_dim", "query_rank")
}
_SIZES = {**LIMITS, **LATENT_LIMITS}
_SWITCHES = (
    "gated", "tied", "qk_norm", "qk_norm_weight", "qk_norm_wide", "qkv_bias", "attention_out_bias", "ffn_bias",
    "parallel_residual", "shared_gate", "router_bias", "norm_bias", "sinks", "embed_norm", "head_bias", "chunked",
)  # fmt: skip


def complaints_about(
    values: Mapping[str, Any], spell: Callable[[str], str] = str, file: str = ""
) -> tuple[Complaint, ...]:
    """What is wrong with values for the fields of `Architecture` (missing fields are not judged). `spell` turns a
    field's name into the user's key."""
    found = [_about_size(name, values[name], spell(name), file) for name in _SIZES if values.get(name) is not None]
    found += [
        Complaint(spell(name), repr(values[name]), "must be true or false", file=file)
        for name in _SWITCHES
        if name in values and not isinstance(values[name], bool)
    ]
    complaints = [complaint for complaint in found if complaint is not None]
    return tuple(complaints) if complaints else tuple(_about_relations(values, spell, file))


def _about_size(name: str, value: Any, key: str, file: str) -> Complaint | None:
    smallest, largest = _SIZES[name]
    if isinstance(value, bool) or not isinstance(value, int):
        return Complaint(key, repr(value), "must be a whole number", f"{smallest} to {largest}", file)
    if not smallest <= value <= largest:
        return Complaint(key, str(value), "is no size of a model", f"{smallest} to {largest}", file)
    return None


def _about_relations(values: Mapping[str, Any], spell: Callable[[str], str], file: str) -> list[Complaint]:
    heads, hidden = values.get("heads"), values.get("hidden")
    out = []
    latent = values.get("latent") is not None or "latent.kv_rank" in values
    if heads and hidden and not latent and not values.get("head_dim") and hidden % heads:
        rule = f"{spell('hidden')} {hidden} is not divisible by it and {spell('head_dim')} is not given"
        out.append(Complaint(spell("heads"), str(heads), rule, _divisors_near(hidden, heads), file))
    kv_heads = values.get("kv_heads")
    if latent and kv_heads and heads and kv_heads != heads:
        rule = f"latent attention has as many as {spell('heads')}"
        out.append(Complaint(spell("kv_heads"), str(kv_heads), rule, str(heads), file))
    elif heads and kv_heads and heads % kv_heads:
        rule = f"must divide {spell('heads')} {heads}"
        out.append(Complaint(spell("kv_heads"), str(kv_heads), rule, _divisors_near(heads, kv_heads), file))
    experts, active = values.get("experts") or 0, values.get("active_experts") or 0
    if active > experts:
        rule = f"a token cannot pass through more than the {experts} experts there are"
        out.append(Complaint(spell("active_experts"), str(active), rule, f"1 to {experts}" if experts else "0", file))
    elif experts and not active:
        out.append(
            Complaint(spell("active_experts"), str(active), "each token needs an expert", f"1 to {experts}", file)
        )
    return [*out, *_about_layers(values, spell, file)]


def _about_layers(values: Mapping[str, Any], spell: Callable[[str], str], file: str) -> Iterator[Complaint]:
    layers = values.get("layers")
    for name in ("dense_layers", "global_layers"):
        beyond = [layer for layer in values.get(name) or () if layers is not None and layer >= layers]
        if beyond:
            rule = f"the model has layers 0 to {layers - 1}" if layers else "the model has no layers"
            yield Complaint(spell(name), ", ".join(map(str, beyond)), rule, file=file)


# a field that means something only beside another
_COMPANY = {
    "dense_layers": "experts", "dense_ffn_hidden": "dense_layers", "shared_experts": "experts",
    "shared_ffn_hidden": "shared_experts", "shared_gate": "shared_experts", "router_bias": "experts",
    "global_layers": "sliding_window", "chunked": "sliding_window", "qk_norm_wide": "qk_norm",
}  # fmt: skip


def complaints_about_company(values: Mapping[str, Any], spell: Callable[[str], str] = str) -> tuple[Complaint, ...]:
    """Fields given by hand that say nothing because the one they belong to is missing."""
    return tuple(
        Complaint(spell(name), str(values[name]), f"means nothing without {spell(other)}")
        for name, other in _COMPANY.items()
        if values.get(name) and not values.get(other)
    )


def _divisors_near(whole: int, wanted: int) -> str:
    divisors = [d for d in range(1, min(whole, 4 * wanted) + 1) if whole % d == 0]
    return "nearest: " + ", ".join(str(d) for d in sorted(sorted(divisors, key=lambda d: abs(d - wanted))[:3]))
