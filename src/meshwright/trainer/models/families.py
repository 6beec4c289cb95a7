"""The families that the trainer can build, and the numbers of a config.json that `Architecture` does not carry."""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.names import nearest
from meshwright.model.architecture import Architecture
from meshwright.model.huggingface import read_config, text_part
from meshwright.trainer.models.wrapped_families import WRAPPED, Wrapped


@dataclass(frozen=True, slots=True)
class Family:
    """A table row: the defaults that the family's reference implementation uses when its config.json is silent."""

    rope_theta: float
    norm_eps: float


FAMILIES: dict[str, Family] = {
    "plain": Family(rope_theta=10_000.0, norm_eps=1e-6),
    "llama": Family(rope_theta=10_000.0, norm_eps=1e-6),
    "mistral": Family(rope_theta=10_000.0, norm_eps=1e-6),
    "qwen2": Family(rope_theta=10_000.0, norm_eps=1e-6),
    "qwen3": Family(rope_theta=10_000.0, norm_eps=1e-6),
}


# what a decoder may have beside those, and the value that says it has not
_ABSENT = {"latent": None, "sinks": False, "qk_norm_wide": False, "qk_norm_weight": True, "head_bias": False,
           "chunked": False}  # fmt: skip

_SWISH = ("silu", "swish")
_OTHER_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
_OTHER_ROPES = ("linear", "dynamic", "yarn")  # scaled by a factor


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """The frequency change of Llama 3.1 and later: long wavelengths are stretched by `factor`."""

    factor: float
    low: float
    high: float
    original_positions: int


@dataclass(frozen=True, slots=True)
class Numerics:
    """What decides a decoder's arithmetic beyond its sizes."""

    rope_theta: float
    norm_eps: float
    scaling: RopeScaling | None = None
    initializer_range: float = 0.02
    padding: int | None = None  # a token whose embedding is not trained


def wrapped_family(arch: Architecture) -> Wrapped | None:
    """The row of a family whose Hugging Face modules are trained; None where our own decoder is."""
    row = WRAPPED.get(arch.family) if arch.config_path is not None else None
    return row if row and (decoder_complaints(arch) or _computed_otherwise(_config(arch))) else None


def complaints(arch: Architecture) -> tuple[Complaint, ...]:
    """Everything about a model that the trainer cannot represent; empty when it can be trained."""
    if arch.config_path is None or wrapped_family(arch) is None:
        return decoder_complaints(arch)
    _padding(_config(arch), arch)
    written = read_config(arch.config_path)
    return tuple(
        Complaint(f"model.{part.name}", str(getattr(arch, part.name)), "differs from the model's config.json",
                  str(getattr(written, part.name)), arch.config_path)
        for part in fields(arch)
        if part.name not in ("name", "config_path", "note") and getattr(arch, part.name) != getattr(written, part.name)
    )  # fmt: skip


def decoder_complaints(arch: Architecture) -> tuple[Complaint, ...]:
    """Everything about a model that the trainer's own decoder cannot represent."""
    found: list[Complaint] = []

    def complain(field: str, value: object, rule: str, legal: str = "") -> None:
        found.append(Complaint(f"model.{field}", str(value), rule, legal))

    if arch.family not in FAMILIES and arch.family in WRAPPED:
        complain("config", "", f"a {arch.family} model is built from its config.json", "the path of one")
    elif arch.family not in FAMILIES:
        known_families = dict.fromkeys((*FAMILIES, *WRAPPED))
        near = nearest(arch.family, known_families)
        known = ", ".join(known_families)
        hint = f"did you mean {near!r}? " if near else ""
        complain("family", arch.family, "the trainer does not know this family", f"{hint}known: {known}")
    if arch.experts:
        complain("experts", arch.experts, "the trainer runs dense models only", "0")
    if arch.parallel_residual:
        complain("parallel_residual", True, "the trainer runs attention before the feed-forward network", "false")
    if arch.layer_norms != 2:
        complain("layer_norms", arch.layer_norms, "the trainer's layers have two norms", "2")
    if arch.embed_norm:
        complain("embed_norm", True, "the trainer has no norm after the embedding", "false")
    if not arch.gated:
        complain("gated", False, "the trainer's feed-forward network is SwiGLU (gated)", "true")
    if arch.norm != "rms":
        complain("norm", arch.norm, "the trainer's norms are RMSNorm", "rms")
    if arch.positions != "rope":
        complain("positions", arch.positions, "the trainer's positions are rotary", "rope")
    for field, neutral in _ABSENT.items():
        if getattr(arch, field) != neutral:
            complain(field, getattr(arch, field), "the trainer's decoder has no such part", str(neutral).lower())
    if arch.head_dim % 2:
        complain("head_dim", arch.head_dim, "rotary positions need an even head size")
    return tuple(found)


def _config(arch: Architecture) -> dict[str, Any]:
    """The text decoder's part of the model's config.json; empty without one."""
    if arch.config_path is None:
        return {}
    path = Path(arch.config_path)
    whole = json.loads((path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8-sig"))
    return dict(text_part(whole, arch.config_path)[0])


def _computed_otherwise(config: dict[str, Any]) -> bool:
    """Does a Llama-like model ask for an activation or a rotary scaling that only transformers' modules have?"""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind, factor = rope.get("rope_type") or rope.get("type"), rope.get("factor")
    scaled = kind in _OTHER_ROPES and isinstance(factor, int | float) and 0 < factor < math.inf
    return scaled or config.get("hidden_act") in _OTHER_ACTIVATIONS


def numerics(arch: Architecture) -> Numerics:
    """The family's defaults, overridden by the model's config.json where it has one.

    Raises InputError for an unknown family (naming those that can be trained) and for rotary scalings other than
    Llama 3's.
    """
    wrong = decoder_complaints(arch)
    if wrong:
        raise InputError(wrong)
    family = FAMILIES[arch.family]
    config = _config(arch)
    activation = config.get("hidden_act") or "silu"
    if activation not in _SWISH:
        rule = "the trainer's feed-forward network is SwiGLU"
        raise InputError((Complaint("hidden_act", str(activation), rule, "silu", arch.config_path or ""),))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    found = {"rope_theta": family.rope_theta, "rms_norm_eps": family.norm_eps, "initializer_range": 0.02}
    found |= {key: value for key in found if (value := config.get(key, rope.get(key))) is not None}
    _positive(found, arch)
    return Numerics(
        rope_theta=float(found["rope_theta"]), norm_eps=float(found["rms_norm_eps"]), scaling=_scaling(rope, arch),
        initializer_range=float(found["initializer_range"]), padding=_padding(config, arch),
    )  # fmt: skip


def _padding(config: dict[str, Any], arch: Architecture) -> int | None:
    """transformers trains no embedding of the padding, and refuses one beyond the vocabulary; counted from the end
    where it is below 0."""
    token = config.get("pad_token_id")
    if token is None:
        return None
    if isinstance(token, bool) or not isinstance(token, int) or not -arch.vocab <= token < arch.vocab:
        legal = f"a token of the vocabulary of {arch.vocab}, or null"
        raise InputError((Complaint("pad_token_id", repr(token), "must be a token", legal, arch.config_path or ""),))
    return token % arch.vocab


def _positive(values: dict[str, Any], arch: Architecture) -> None:
    """Raise InputError naming every value that is not a finite number above 0."""
    wrong = tuple(
        Complaint(key, repr(value), "must be a number above 0", file=arch.config_path or "")
        for key, value in values.items()
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf
    )
    if wrong:
        raise InputError(wrong)


def _scaling(rope: dict[str, Any], arch: Architecture) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        rule = "the trainer does not know this rotary scaling"
        raise InputError((Complaint("rope_scaling", str(kind), rule, "default, llama3", arch.config_path or ""),))
    keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    _positive({key: rope.get(key) for key in keys}, arch)
    return RopeScaling(
        factor=float(rope["factor"]), low=float(rope["low_freq_factor"]), high=float(rope["high_freq_factor"]),
        original_positions=int(rope["original_max_position_embeddings"]),
    )  # fmt: skip


def inverse_frequencies(head_dim: int, rules: Numerics) -> tuple[float, ...]:
    """Rotary frequencies in radians a position, one a pair of channels (Su et al. 2021; Llama 3.1's stretching)."""
    plain = [rules.rope_theta ** (-2.0 * pair / head_dim) for pair in range(head_dim // 2)]
    scaling = rules.scaling
    if scaling is None:
        return tuple(plain)

    def stretched(frequency: float) -> float:
        turns = scaling.original_positions * frequency / (2 * math.pi)
        blend = min(1.0, max(0.0, (turns - scaling.low) / (scaling.high - scaling.low)))
        return (1 - blend) * frequency / scaling.factor + blend * frequency

    return tuple(stretched(frequency) for frequency in plain)
