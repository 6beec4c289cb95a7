"""The tensors of each unit: the one truth behind parameters, FLOPs, activation sizes and tensor-parallel sharding.

Shapes are (output, input) for matrices, as in `torch.nn.Linear`. Names are the same for every family; a family that
stores q, k and v fused (GPT-2, GPT-NeoX) has the same elements in one tensor.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

from meshwright.model.architecture import Architecture
from meshwright.model.units import Unit, UnitKind

Split = Literal["column", "row", "vocab"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a unit, or `copies` equal ones (experts).

    `split` says what a tensor group divides: "column" and "vocab" the first dimension, "row" the last, None nothing
    (every rank holds it whole). `block` consecutive rows or columns stay together: the head size in attention.
    `active` is the share of the copies that one token passes through.
    """

    name: str
    shape: tuple[int, ...]
    split: Split | None
    matmul: bool  # the right-hand side of a matrix product; an embedding look-up is not one
    copies: int = 1
    active: float = 1.0
    block: int = 1
    tied: bool = False  # the same storage as the embedding where both are in one stage

    @property
    def size(self) -> int:
        """Elements of all copies."""
        return prod(self.shape) * self.copies

    def local_size(self, tp: int) -> int:
        """Elements on the rank of a tensor group that holds most; all copies. Whole blocks only, at least one:
        more ranks than key-value heads means that each rank holds a replica of one head."""
        if self.split is None or tp == 1:
            return self.size
        divided = self.shape[-1 if self.split == "row" else 0]
        blocks = -(-divided // self.block)
        return self.size // divided * min(divided, -(-blocks // tp) * self.block)


def tensors_of(arch: Architecture, unit: Unit) -> tuple[Tensor, ...]:
    """Every parameter tensor of one unit, in the order of the forward pass. A tied output matrix appears in `head`
    as well as in `embed` (marked `tied`), because a head on a stage of its own needs its own copy."""
    return _tensors(arch, unit.kind)


@lru_cache(maxsize=1024)
def _tensors(arch: Architecture, kind: UnitKind) -> tuple[Tensor, ...]:
    match kind:
        case "embed":
            return tuple(_embedding(arch))
        case "attn":
            return (*_norms(arch, "attn_norm", -(-arch.layer_norms // 2)), *_attention(arch))
        case "ffn":
            return (*_norms(arch, "ffn_norm", arch.layer_norms // 2), *_feed_forward(arch))
        case "layer":
            return (*_norms(arch, "norm", arch.layer_norms), *_attention(arch), *_feed_forward(arch))
        case "head":
            output = Tensor("output.weight", (arch.vocab, arch.hidden), "vocab", True, tied=arch.tied)
            return (*_norms(arch, "final_norm", 1), output)


def _norms(arch: Architecture, name: str, count: int) -> Iterator[Tensor]:
    for index in range(count):
        suffix = "" if index == 0 else f"_{index + 1}"
        yield Tensor(f"{name}{suffix}.weight", (arch.hidden,), None, False)
        if arch.norm == "layer":
            yield Tensor(f"{name}{suffix}.bias", (arch.hidden,), None, False)


def _embedding(arch: Architecture) -> Iterator[Tensor]:
    yield Tensor("tokens.weight", (arch.vocab, arch.hidden), "vocab", False)
    if arch.positions == "learned":
        yield Tensor("positions.weight", (arch.max_positions, arch.hidden), None, False)
    if arch.embed_norm:
        yield from _norms(arch, "embed_norm", 1)


def _attention(arch: Architecture) -> Iterator[Tensor]:
    head = arch.head_dim
    for name, heads in (("q", arch.heads), ("k", arch.kv_heads), ("v", arch.kv_heads)):
        yield Tensor(f"{name}.weight", (heads * head, arch.hidden), "column", True, block=head)
        if arch.qkv_bias:
            yield Tensor(f"{name}.bias", (heads * head,), "column", False, block=head)
    if arch.qk_norm:
        yield Tensor("q_norm.weight", (head,), None, False)
        yield Tensor("k_norm.weight", (head,), None, False)
    yield Tensor("o.weight", (arch.hidden, arch.heads * head), "row", True, block=head)
    if arch.attention_out_bias:
        yield Tensor("o.bias", (arch.hidden,), None, False)


def _feed_forward(arch: Architecture) -> Iterator[Tensor]:
    if not arch.experts:
        yield from _mlp(arch, "", arch.ffn_hidden)
        return
    yield Tensor("router.weight", (arch.experts, arch.hidden), None, True)
    yield from _mlp(arch, "experts.", arch.ffn_hidden, arch.experts, arch.active_experts / arch.experts)
    if arch.shared_experts:
        yield from _mlp(arch, "shared.", arch.ffn_hidden * arch.shared_experts)


def _mlp(arch: Architecture, prefix: str, width: int, copies: int = 1, active: float = 1.0) -> Iterator[Tensor]:
    for name in ("gate", "up") if arch.gated else ("up",):
        yield Tensor(f"{prefix}{name}.weight", (width, arch.hidden), "column", True, copies, active)
        if arch.ffn_bias:
            yield Tensor(f"{prefix}{name}.bias", (width,), "column", False, copies, active)
    yield Tensor(f"{prefix}down.weight", (arch.hidden, width), "row", True, copies, active)
    if arch.ffn_bias:
        yield Tensor(f"{prefix}down.bias", (arch.hidden,), None, False, copies, active)
