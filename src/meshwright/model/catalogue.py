"""Shapes of public models by name, from shapes_*.toml, each with its source."""

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.basics.names import nearest
from meshwright.model.architecture import Architecture, LatentAttention

_FOLDER = Path(__file__).parent
_FILES = ("gpt", "llama", "qwen", "others")
_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab")
_ABOUT = ("like", "sizes", "aliases", "parameters", "parameters_b", "source")


@dataclass(frozen=True, slots=True)
class PublicModel:
    """A row of the catalogue: the shape, the published parameter count (exact or rounded) and where both stand."""

    architecture: Architecture
    published_parameters: float
    exact: bool
    source: str


def named(name: str, field: str = "model.name") -> Architecture:
    """The shape of a public model; an organisation before a slash, case and punctuation do not matter.
    Raises InputError naming the nearest known one."""
    return public_model(name, field).architecture


def public_model(name: str, field: str = "model.name") -> PublicModel:
    """The catalogue's row for a public model. Raises InputError as `named` does."""
    data = _data()
    known = {alias: row for row, about in data["models"].items() for alias in (row, *about.get("aliases", ()))}
    wanted = _plain(name)
    for alias, row in known.items():
        if _plain(alias) == wanted:
            return _row(row, data)
    near = nearest(name.rsplit("/", 1)[-1], known)
    raise bad_input(
        "unknown model", field=field, value=repr(name),
        legal=(f"did you mean {near!r}? " if near else "") + "known: " + ", ".join(data["models"]),
    )  # fmt: skip


def model_names() -> tuple[str, ...]:
    """Names of all public models, in the order of the data file."""
    return tuple(_data()["models"])


def _row(name: str, data: dict[str, Any]) -> PublicModel:
    about = data["models"][name]
    habits = data["families"][about["like"]] | {key: value for key, value in about.items() if key not in _ABOUT}
    habits |= {key: tuple(value) for key, value in habits.items() if isinstance(value, list)}
    if "latent" in habits:
        habits["latent"] = LatentAttention(**habits["latent"])
    sizes = dict(zip(_SIZES, about["sizes"], strict=True))
    return PublicModel(
        architecture=Architecture(name=name, family=about["like"], **sizes, **habits),
        published_parameters=about.get("parameters", about.get("parameters_b", 0) * 1e9),
        exact="parameters" in about,
        source=about["source"],
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.rsplit("/", 1)[-1].lower())


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    tables = [tomllib.loads((_FOLDER / f"shapes_{file}.toml").read_text(encoding="utf-8")) for file in _FILES]
    return {key: {name: row for table in tables for name, row in table[key].items()} for key in ("families", "models")}
