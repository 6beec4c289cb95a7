"""The model that a row of a measured table trained: printed dimensions, a public shape, or a parameter count."""

import re
import tomllib
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from meshwright.basics.errors import InputError, bad_input
from meshwright.basics.names import nearest
from meshwright.files.model_of import default_ffn_hidden
from meshwright.files.rows import Row
from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.model.catalogue import model_names, public_model
from meshwright.model.propose import from_count

_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab", "experts", "active_experts")
_GPT_VOCAB = 51_200  # of GPT-2 (50,257), padded as Megatron does
_HEAD_DIMS = (128, 144, 150, 160, 112, 96, 192, 64, 256)  # the usual one first
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([BMT])\b", re.IGNORECASE)


def row_model(row: Row) -> tuple[Architecture, tuple[str, ...]]:
    """The architecture, and what had to be assumed. Raises InputError when neither dimensions nor a known name nor a
    parameter count say what was trained."""
    assumed: list[str] = []
    public = _public(row, assumed)
    printed = {name: getattr(row, name) for name in _SIZES if getattr(row, name) is not None}
    if row.gated_mlp is not None:
        printed["gated"] = row.gated_mlp
    if row.tied_embeddings is not None:
        printed["tied"] = row.tied_embeddings
    if "blocks" in public:  # a stand-in keeps its own widths; a model with fewer blocks gets fewer of its layers
        printed = {"layers": max(1, round(public["layers"] * (row.layers or public["blocks"]) / public["blocks"]))}
    values = {key: value for key, value in {**public, **printed}.items() if key != "blocks"}
    _guard_latent(values, public)
    _complete(values, row, assumed)
    layers, whole = values["layers"], public.get("layers", values["layers"])
    for name in ("dense_layers", "global_layers"):
        values[name] = tuple(layer for layer in values.get(name, ()) if layer < layers)
    if layers < whole and values["dense_layers"]:  # a model cut short keeps the share of its first, dense layers
        values["dense_layers"] = tuple(range(max(1, round(len(public["dense_layers"]) * layers / whole))))
    if values.get("positions") == "learned":
        values["max_positions"] = max(values.get("max_positions", 0), row.seq_len or 2048)
    return Architecture(**{"name": row.model_name or "plain", "family": "plain", **values}), tuple(assumed)


def _public(row: Row, assumed: list[str]) -> dict[str, Any]:
    """Fields of the shape that the name means; empty when it says nothing."""
    name = _plain(row.model_name)
    for about in _shapes():
        if re.search(about["pattern"], name):
            found = {key: value for key, value in about.items() if key not in ("pattern", "source", "instead")}
            if "instead" in about:
                assumed.append(f"model {row.model_name}: {about['instead']}")
            if "latent" in found:
                found["latent"] = LatentAttention(**found["latent"])
            return found
    try:
        arch = public_model(row.model_name).architecture
    except InputError:
        close = nearest(row.model_name.split("(")[0].strip(), model_names())
        if row.hidden is not None or close is None or _size(close) != _size(row.model_name):
            return {}
        assumed.append(f"model {row.model_name}: taken as {close}")
        arch = public_model(close).architecture
    return {spec.name: getattr(arch, spec.name) for spec in fields(arch) if spec.init and spec.name != "name"}


def _guard_latent(values: dict[str, Any], public: dict[str, Any]) -> None:
    """A printed head dimension belongs to plain heads; with latent attention it follows from its own widths."""
    if values.get("latent") is not None and "head_dim" in public:
        values["head_dim"] = public["head_dim"]


def _complete(values: dict[str, Any], row: Row, assumed: list[str]) -> None:
    """Fill what is missing, in place, by what is usual for such a model."""
    count = row.params_b * 1e9 if row.params_b else _count(row.model_name)
    if "hidden" not in values:
        if count is None:
            raise bad_input(
                "neither dimensions nor a parameter count are stated, and the name is not known", field="model_name",
                value=repr(row.model_name),
            )  # fmt: skip
        _propose(values, row, count, assumed)
    hidden = values["hidden"]
    gated = values.setdefault("gated", True)
    if "heads" not in values:
        tp = row.tp or 1
        fitting = (hidden // dim for dim in _HEAD_DIMS if not hidden % dim and not hidden // dim % tp)
        values["heads"] = next(fitting, tp)
        assumed.append(f"{values['heads']} heads")
    values.setdefault("kv_heads", values["heads"])
    values.setdefault("head_dim", hidden // values["heads"])
    if "ffn_hidden" not in values:
        values["ffn_hidden"] = default_ffn_hidden(hidden, gated)
        assumed.append(f"ffn_hidden {values['ffn_hidden']}")
    if "vocab" not in values:
        values["vocab"] = _GPT_VOCAB
        assumed.append(f"vocab {_GPT_VOCAB}")
    if "layers" not in values:
        if count is None:
            raise bad_input("neither layers nor a parameter count are stated", field="layers")
        values["layers"] = _layers(values, count, row.pp or 1)
        assumed.append(f"{values['layers']} layers, from the parameter count")


def _propose(values: dict[str, Any], row: Row, count: float, assumed: list[str]) -> None:
    """A shape from the parameter count alone; what the family says of biases and norms stays."""
    arch = from_count(round(count))
    if not values.get("gated", True):  # two matrices of four times the width hold what three of 8/3 do
        arch = replace(arch, ffn_hidden=4 * arch.hidden, kv_heads=arch.heads)
    if row.vocab is None and values.get("family") == "gpt2":
        arch = replace(arch, vocab=_GPT_VOCAB)
    for name in ("hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab"):
        values.setdefault(name, getattr(arch, name))
    values.setdefault("layers", _layers(values, count, row.pp or 1))
    assumed.append(f"shape from the parameter count: {values['layers']} layers of {values['hidden']}")


def _layers(values: dict[str, Any], count: float, pp: int) -> int:
    """The number of layers that gives the parameter count; a multiple of the stages if one is within 2 %."""
    hidden, ffn = values["hidden"], values["ffn_hidden"]
    attention = hidden * values["head_dim"] * 2 * (values["heads"] + values["kv_heads"])
    network = (3 if values.get("gated", True) else 2) * hidden * ffn * max(1, values.get("experts") or 1)
    ends = values["vocab"] * hidden * (1 if values.get("tied") else 2)
    exact = max(1.0, float((count - ends) / (attention + network)))
    multiple = max(1, round(exact / pp)) * pp
    return multiple if abs(multiple / exact - 1) <= 0.025 else max(1, round(exact))


def _count(name: str) -> float | None:
    match = _COUNT.search(name)
    if match is None:
        return None
    return float(match.group(1)) * {"M": 1e6, "B": 1e9, "T": 1e12}[match.group(2).upper()]


def _size(name: str) -> str:
    match = _COUNT.search(name.replace("-", " ").replace("_", " "))
    return f"{float(match.group(1)):g}{match.group(2).upper()}" if match else ""


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-.]+", " ", name.lower()).strip()


@lru_cache(maxsize=1)
def _shapes() -> tuple[dict[str, Any], ...]:
    path = Path(__file__).with_name("rows_models.toml")
    return tuple(tomllib.loads(path.read_text(encoding="utf-8"))["model"])
