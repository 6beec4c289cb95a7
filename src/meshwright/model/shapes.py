"""The tensors of each unit: the one truth behind parameters, FLOPs, activation sizes and tensor-parallel sharding.

Shapes are (output, input) for matrices, as in `torch.nn.Linear`. Names are the same for every family; a family that
stores q, k and v fused (GPT-2, GPT-NeoX) has the same elements in one tensor.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.model.units import Unit
from meshwright.model.variants import Variant, variant_of

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

    def local_size(self, tp: int, vocab_multiple: int = 1) -> int:
        """Elements on the rank of a tensor group that holds most; all copies. Whole blocks only, at least one:
        more ranks than key-value heads means that each rank holds a replica of one head. Vocabulary rows are padded
        to a multiple of `vocab_multiple` times `tp`, as Megatron-LM does."""
        if self.split is None:
            return self.size
        divided = self.shape[-1 if self.split == "row" else 0]
        if self.split == "vocab":
            return self.size // divided * vocab_multiple * -(-divided // (vocab_multiple * tp))
        blocks = -(-divided // self.block)
        return self.size // divided * min(divided, -(-blocks // tp) * self.block)


def padded_vocab(vocab: int, vocab_multiple: int = 1, tp: int = 1) -> int:
    """Rows of the embedding once padded to a multiple of `vocab_multiple` times `tp`."""
    step = vocab_multiple * tp
    return -(-vocab // step) * step


def tensors_of(arch: Architecture, unit: Unit) -> tuple[Tensor, ...]:
    """Every parameter tensor of one unit, in the order of the forward pass. A tied output matrix appears in `head`
    as well as in `embed` (marked `tied`), because a head on a stage of its own needs its own copy."""
    return variant_tensors(arch, variant_of(arch, unit))


@lru_cache(maxsize=1024)
def variant_tensors(arch: Architecture, variant: Variant) -> tuple[Tensor, ...]:
    """The same for every unit of one variant."""
    match variant.kind:
        case "embed":
            return tuple(_embedding(arch))
        case "attn":
            return (*_norms(arch, "attn_norm", -(-arch.layer_norms // 2)), *_attention(arch))
        case "ffn":
            return (*_norms(arch, "ffn_norm", arch.layer_norms // 2), *_feed_forward(arch, variant.experts))
        case "layer":
            parts = (*_attention(arch), *_feed_forward(arch, variant.experts))
            return (*_norms(arch, "norm", arch.layer_norms), *parts)
        case "head":
            output = Tensor("output.weight", (arch.vocab, arch.hidden), "vocab", True, tied=arch.tied)
            bias = (Tensor("output.bias", (arch.vocab,), "vocab", False),) if arch.head_bias else ()
            return (*_norms(arch, "final_norm", 1), output, *bias)


def _norms(arch: Architecture, name: str, count: int) -> Iterator[Tensor]:
    for index in range(count):
        suffix = "" if index == 0 else f"_{index + 1}"
        yield Tensor(f"{name}{suffix}.weight", (arch.hidden,), None, False)
        if arch.norm == "layer" and arch.norm_bias:
            yield Tensor(f"{name}{suffix}.bias", (arch.hidden,), None, False)


def _embedding(arch: Architecture) -> Iterator[Tensor]:
    yield Tensor("tokens.weight", (arch.vocab, arch.hidden), "vocab", False)
    if arch.positions == "learned":
        yield Tensor("positions.weight", (arch.max_positions, arch.hidden), None, False)
    if arch.embed_norm:
        yield from _norms(arch, "embed_norm", 1)


def _attention(arch: Architecture) -> Iterator[Tensor]:
    yield from _queries_keys_values(arch) if arch.latent is None else _latent(arch, arch.latent)
    if arch.sinks:
        yield Tensor("sinks.weight", (arch.heads,), "column", False)
    yield Tensor("o.weight", (arch.hidden, arch.heads * arch.value_dim), "row", True, block=arch.value_dim)
    if arch.attention_out_bias:
        yield Tensor("o.bias", (arch.hidden,), None, False)


def _queries_keys_values(arch: Architecture) -> Iterator[Tensor]:
    head = arch.head_dim
    for name, heads in (("q", arch.heads), ("k", arch.kv_heads), ("v", arch.kv_heads)):
        yield Tensor(f"{name}.weight", (heads * head, arch.hidden), "column", True, block=head)
        if arch.qkv_bias:
            yield Tensor(f"{name}.bias", (heads * head,), "column", False, block=head)
    if not arch.qk_norm or not arch.qk_norm_weight:
        return
    for name, heads in (("q", arch.heads), ("k", arch.kv_heads)):
        width = heads * head if arch.qk_norm_wide else head
        split: Split | None = "column" if arch.qk_norm_wide else None
        yield Tensor(f"{name}_norm.weight", (width,), split, False, block=head)
        if arch.norm == "layer" and arch.norm_bias:
            yield Tensor(f"{name}_norm.bias", (width,), split, False, block=head)


def _latent(arch: Architecture, latent: LatentAttention) -> Iterator[Tensor]:
    """DeepSeek-V2, arXiv:2405.04434, equations 9-19. The compressing matrices are on every tensor rank."""
    queries = (arch.heads * arch.query_dim, arch.hidden if latent.query_rank is None else latent.query_rank)
    if latent.query_rank is None:
        yield Tensor("q.weight", queries, "column", True, block=arch.query_dim)
    else:
        yield Tensor("q_down.weight", (latent.query_rank, arch.hidden), None, True)
        if arch.qkv_bias:
            yield Tensor("q_down.bias", (latent.query_rank,), None, False)
        yield Tensor("q_down_norm.weight", (latent.query_rank,), None, False)
        yield Tensor("q_up.weight", queries, "column", True, block=arch.query_dim)
    compressed = latent.kv_rank + latent.rope_dim
    yield Tensor("kv_down.weight", (compressed, arch.hidden), None, True)
    if arch.qkv_bias:
        yield Tensor("kv_down.bias", (compressed,), None, False)
    yield Tensor("kv_down_norm.weight", (latent.kv_rank,), None, False)
    head = latent.nope_dim + latent.value_dim
    yield Tensor("kv_up.weight", (arch.heads * head, latent.kv_rank), "column", True, block=head)


def _feed_forward(arch: Architecture, experts: bool) -> Iterator[Tensor]:
    if not experts:
        yield from _mlp(arch, "", arch.dense_width)
        return
    yield Tensor("router.weight", (arch.experts, arch.hidden), None, True)
    if arch.router_bias:
        yield Tensor("router.bias", (arch.experts,), None, False)
    yield from _mlp(arch, "experts.", arch.ffn_hidden, arch.experts, arch.active_experts / arch.experts)
    if arch.shared_width:
        yield from _mlp(arch, "shared.", arch.shared_width)
    if arch.shared_gate:
        yield Tensor("shared_gate.weight", (1, arch.hidden), None, True)


def _mlp(arch: Architecture, prefix: str, width: int, copies: int = 1, active: float = 1.0) -> Iterator[Tensor]:
    for name in ("gate", "up") if arch.gated else ("up",):
        yield Tensor(f"{prefix}{name}.weight", (width, arch.hidden), "column", True, copies, active)
        if arch.ffn_bias:
            yield Tensor(f"{prefix}{name}.bias", (width,), "column", False, copies, active)
    yield Tensor(f"{prefix}down.weight", (arch.hidden, width), "row", True, copies, active)
    if arch.ffn_bias:
        yield Tensor(f"{prefix}down.bias", (arch.hidden,), None, False, copies, active)
