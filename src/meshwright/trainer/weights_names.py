"""Where a parameter of the trainer lies in a folder of Hugging Face weights. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.model.architecture import Architecture
from meshwright.trainer.models.names import PART
from meshwright.trainer.models.wrapped_families import WRAPPED, Wrapped


@dataclass(frozen=True, slots=True)
class Piece:
    """A stored tensor, or rows of it, and the place in the parameter that it fills.

    `first`: the row of the stored matrix, taken as (output, input), at which the parameter begins. `expert`, `rows`:
    the place in a parameter [experts, rows, columns]; without an expert the piece fills all of the parameter.
    """

    name: str
    transposed: bool = False
    first: int = 0
    expert: int | None = None
    rows: tuple[int, int] = (0, 0)


def pieces(name: str, arch: Architecture) -> tuple[Piece, ...]:
    """The stored pieces of a parameter, by its name inside the trainer."""
    row = WRAPPED.get(arch.family, WRAPPED["llama"])
    outer, layer, inner = _apart(name)
    if layer is None:
        return (Piece(_outer(outer, row)),)
    prefix = f"{row.base}.{row.layers}.{layer}."
    if arch.experts and inner.startswith("mlp."):
        return tuple(_experts(prefix + "block_sparse_moe.", inner.removeprefix("mlp."), arch))
    path, part, kind = _fused(inner)
    transposed = row.transposed and kind == "weight" and path.rsplit(".", 1)[-1].startswith("c_")
    first = _first_row(path, part, row, arch) if part else 0
    return (Piece(f"{prefix}{path}.{kind}", transposed, first),)


def aliases(stored: str, arch: Architecture) -> tuple[str, ...]:
    """Other names under which published folders have a stored tensor: without the model around it, under the name of
    another version, and as the text decoder of a model of several parts."""
    row = WRAPPED.get(arch.family, WRAPPED["llama"])
    if stored == f"{row.head}.weight":
        other = tuple(f"{head}.weight" for head in ("lm_head", "embed_out") if head != row.head)
        return (*other, f"language_model.{stored}")
    bare = stored.removeprefix(f"{row.base}.")
    return bare, f"language_model.{stored}", f"{row.base}.language_model.{bare}"


_NO_WEIGHTS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq")


def is_weight(stored: str) -> bool:
    """Not one of the constant tables that older files have beside the weights."""
    return not stored.endswith(_NO_WEIGHTS)


def _apart(name: str) -> tuple[str, int | None, str]:
    """("model.norm.weight", None, "") or ("", 7, "mlp.up_proj.weight")."""
    parts = name.split(".")
    if parts[:2] != ["model", "layers"]:
        return name, None, ""
    return "", int(parts[2]), ".".join(parts[3:])


def _outer(name: str, row: Wrapped) -> str:
    module, kind = name.rsplit(".", 1)
    places: Mapping[str, str] = {
        "model.embed_tokens": f"{row.base}.{row.embedding}", "model.embed_positions": f"{row.base}.{row.positions}",
        "model.norm": f"{row.base}.{row.norm}", "lm_head": row.head,
    }  # fmt: skip
    return f"{places[module]}.{kind}"


def _fused(inner: str) -> tuple[str, str, str]:
    """("attn.c_attn", "q_part", "weight"), or with "" for what is not a part."""
    path, kind = inner.rsplit(".", 1)
    if not path.endswith(PART):
        return path, "", kind
    path, part = path.rsplit(".", 1)
    return path, part, kind


def _first_row(path: str, part: str, row: Wrapped, arch: Architecture) -> int:
    queries, others = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    parts = row.fused[path]
    sizes = (queries, others, others) if len(parts) == 3 else (arch.ffn_hidden,) * 2
    return sum(sizes[: parts.index(part)])


def _experts(prefix: str, inner: str, arch: Architecture) -> list[Piece]:
    """Mixtral's: a router, and three matrices an expert, of which the trainer has two stacks."""
    width = arch.ffn_hidden
    places = {
        "experts.gate_up_proj": (("w1", (0, width)), ("w3", (width, 2 * width))),
        "experts.down_proj": (("w2", (0, arch.hidden)),),
    }
    if inner not in places:
        return [Piece(prefix + inner)]
    return [
        Piece(f"{prefix}experts.{expert}.{stored}.weight", expert=expert, rows=rows)
        for expert in range(arch.experts)
        for stored, rows in places[inner]
    ]
