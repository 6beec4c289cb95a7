"""A Llama-type decoder (RMSNorm, rotary positions, grouped-query attention, SwiGLU) under Hugging Face names.

It holds only the units of one stage, and only one tensor rank's share of each parameter. A layer or half-layer that
the stage does not hold is absent and adds nothing; global names ("model.layers.7.mlp.up_proj.weight") stay.
Shapes: B samples, S positions (Z local positions under sequence parallelism), D hidden, V vocabulary, H heads.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright.model.architecture import Architecture
from meshwright.trainer.models.families import Numerics, inverse_frequencies
from meshwright.trainer.models.initial import global_shape
from meshwright.trainer.models.names import bounds
from meshwright.trainer.models.stage import StageModel, UnitRunner, sight
from meshwright.trainer.parallel.tensor_parallel import TensorGroup


class RMSNorm(nn.Module):
    """Root-mean-square norm (Zhang & Sennrich 2019), computed in fp32, over the last dimension."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * wide.to(x.dtype)


class RowLinear(nn.Module):
    """A linear layer whose input features are shared out over the tensor group: partial sums, then the bias."""

    def __init__(self, n_in: int, n_out: int, bias: bool, tensor: TensorGroup) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.empty(n_out)) if bias else None
        self.tensor = tensor

    def forward(self, x: Tensor) -> Tensor:
        out = self.tensor.leave(F.linear(x, self.weight))
        return out if self.bias is None else out + self.bias


class Attention(nn.Module):
    """Grouped-query attention over this tensor rank's heads: [B, S, D] -> [B, Z, D]; causal where no mask is given."""

    def __init__(self, arch: Architecture, rules: Numerics, tensor: TensorGroup) -> None:
        super().__init__()
        self.head_dim = arch.head_dim
        heads, kv_heads = arch.heads // tensor.size, arch.kv_heads // tensor.size
        self.shares_heads = heads != kv_heads
        self.q_proj = nn.Linear(arch.hidden, heads * arch.head_dim, bias=arch.qkv_bias)
        self.k_proj = nn.Linear(arch.hidden, kv_heads * arch.head_dim, bias=arch.qkv_bias)
        self.v_proj = nn.Linear(arch.hidden, kv_heads * arch.head_dim, bias=arch.qkv_bias)
        self.o_proj = RowLinear(heads * arch.head_dim, arch.hidden, arch.attention_out_bias, tensor)
        self.q_norm = RMSNorm(arch.head_dim, rules.norm_eps) if arch.qk_norm else None
        self.k_norm = RMSNorm(arch.head_dim, rules.norm_eps) if arch.qk_norm else None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_dim))  # [B, S, H, head_dim]
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # [B, H, S, head_dim]
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, seen, is_causal=seen is None, enable_gqa=self.shares_heads)
        return self.o_proj(out.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020) over this tensor rank's share of the inner features: [B, S, D] -> [B, Z, D]."""

    def __init__(self, arch: Architecture, tensor: TensorGroup) -> None:
        super().__init__()
        first, last = bounds(arch.ffn_hidden, tensor.size, tensor.rank)
        self.gate_proj = nn.Linear(arch.hidden, last - first, bias=arch.ffn_bias)
        self.up_proj = nn.Linear(arch.hidden, last - first, bias=arch.ffn_bias)
        self.down_proj = RowLinear(last - first, arch.hidden, arch.ffn_bias, tensor)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """One layer, or the half of it that the stage holds; the absent half adds nothing."""

    def __init__(self, arch: Architecture, rules: Numerics, tensor: TensorGroup, halves: frozenset[str]) -> None:
        super().__init__()
        self.tensor = tensor
        if "attn" in halves:
            self.input_layernorm = RMSNorm(arch.hidden, rules.norm_eps)
            self.self_attn = Attention(arch, rules, tensor)
        if "ffn" in halves:
            self.post_attention_layernorm = RMSNorm(arch.hidden, rules.norm_eps)
            self.mlp = FeedForward(arch, tensor)
        self.halves = halves

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None) -> Tensor:
        """Unit `layers.N.attn`: [B, Z, D] -> [B, Z, D]."""
        out: Tensor = self.self_attn(self.tensor.enter(self.input_layernorm(x)), cos, sin, seen)
        return x + out

    def feed_forward(self, x: Tensor) -> Tensor:
        """Unit `layers.N.ffn`: [B, Z, D] -> [B, Z, D]."""
        return x + self.mlp(self.tensor.enter(self.post_attention_layernorm(x)))  # type: ignore[no-any-return]

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None, layer: int, run: UnitRunner) -> Tensor:
        if "attn" in self.halves:
            x = run(f"layers.{layer}.attn", partial(self.attention, cos=cos, sin=sin, seen=seen), x)
        if "ffn" in self.halves:
            x = run(f"layers.{layer}.ffn", self.feed_forward, x)
        return x


class Body(nn.Module):
    """What Hugging Face calls `model`: embedding, layers and final norm, as far as the stage holds them."""

    def __init__(self, arch: Architecture, rules: Numerics, tensor: TensorGroup, units: Sequence[str]) -> None:
        super().__init__()
        halves: dict[int, set[str]] = {}
        for unit in units:
            if unit.startswith("layers."):
                _, layer, half = unit.split(".")
                halves.setdefault(int(layer), set()).add(half)
        if "embed" in units:
            first, last = bounds(arch.vocab, tensor.size, tensor.rank)
            self.embed_tokens = nn.Embedding(last - first, arch.hidden)
        self.layers = nn.ModuleDict(
            {str(layer): DecoderLayer(arch, rules, tensor, frozenset(held)) for layer, held in halves.items()}
        )
        if "head" in units:
            self.norm = RMSNorm(arch.hidden, rules.norm_eps)


class Decoder(StageModel):
    """A stage of the Llama-type decoder."""

    def __init__(self, arch: Architecture, rules: Numerics, tensor: TensorGroup, units: Sequence[str]) -> None:
        super().__init__(arch, tensor, units)
        self.rules, self.initializer_range, self.padding = rules, rules.initializer_range, rules.padding
        self.model: Body = Body(arch, rules, tensor, units)
        if self.has_head:
            first, last = bounds(arch.vocab, tensor.size, tensor.rank)
            self.lm_head = nn.Linear(arch.hidden, last - first, bias=False)
            if arch.tied and self.has_embedding:
                self.lm_head.weight = self.model.embed_tokens.weight
        self._rope: tuple[Tensor, Tensor] | None = None

    def embed(self, tokens: Tensor) -> Tensor:
        return self.tensor.embedding(tokens, self.model.embed_tokens.weight, self.arch.vocab, self.padding).to(
            self.dtype
        )

    def logits(self, x: Tensor) -> Tensor:
        return self.lm_head(self.tensor.enter(self.model.norm(x)))  # type: ignore[no-any-return]

    def rope(self, seq_len: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each [S, head_dim], kept for the last sequence length."""
        if self._rope is None or self._rope[0].shape[0] != seq_len:
            frequencies = torch.tensor(inverse_frequencies(self.arch.head_dim, self.rules), dtype=torch.float32)
            angles = torch.outer(torch.arange(seq_len, dtype=torch.float32), frequencies)
            angles = torch.cat((angles, angles), dim=-1).to(device)
            self._rope = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        return self._rope

    def masks(self, seq_len: int, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
        """Which tokens see which, on layers without and with the model's window; None: all that came before."""
        seen, window = None if self.positions is None else sight(self.positions), self.arch.sliding_window
        if window is None or seq_len <= window:
            return seen, seen
        near = torch.ones(seq_len, seq_len, dtype=torch.bool, device=device).tril().triu(1 - window)
        return seen, near if seen is None else seen & near

    def layers(self, x: Tensor) -> Tensor:
        if self.model.layers:
            cos, sin = self.rope(x.shape[1] * (self.tensor.size if self.tensor.sequence else 1), x.device)
            seen, near = self.masks(cos.shape[0], x.device)
            if self.positions is not None:
                cos, sin = (table[self.positions].unsqueeze(1) for table in (cos, sin))  # [B, 1, S, head_dim]
            for layer, module in self.model.layers.items():
                mask = seen if int(layer) in self.arch.global_layers else near
                x = module(x, cos, sin, mask, int(layer), self.run)
        return x

    def whole_shape(self, name: str, local: Tensor) -> tuple[int, ...]:
        return global_shape(local, name, self.arch, self.tensor)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions in the half-split convention of Hugging Face: [B, H, S, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def build(arch: Architecture, rules: Numerics, tensor: TensorGroup, units: Sequence[str]) -> Decoder:
    """A decoder without storage (on the meta device), for the units of one stage and one tensor rank."""
    with torch.device("meta"):
        return Decoder(arch, rules, tensor, units)
