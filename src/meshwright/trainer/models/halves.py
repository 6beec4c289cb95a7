"""Halves of a Hugging Face layer: its own forward, in which what belongs to the other half is absent.

A layer computes `x + attention(norm(x))`, then `x + mlp(norm(x))`; with an absent half that adds nothing it computes
one of the two, and both halves in turn compute exactly what the layer does.
"""

import copy
from typing import Any

from torch import Tensor, nn

from meshwright.trainer.models.wrapped_families import Wrapped


class Nothing:
    """What an absent half gives: any tensor plus nothing is that very tensor, at no cost."""

    def __add__(self, other: Tensor) -> Tensor:
        return other

    __radd__ = __add__

    def to(self, *args: Any) -> "Nothing":
        """Moves nowhere."""
        return self


class Absent(nn.Module):
    """In place of an absent attention (which gives a tuple), feed-forward network or table of positions."""

    def __init__(self, gives_tuple: bool = False) -> None:
        super().__init__()
        self.gives_tuple = gives_tuple

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return (Nothing(), None) if self.gives_tuple else Nothing()


def half(layer: nn.Module, row: Wrapped, which: str) -> nn.Module:
    """One half ("attn" or "ffn") of a layer. It shares the modules that it keeps with the layer."""
    kept = set(row.attention if which == "attn" else row.feed_forward)
    view = copy.copy(layer)
    children: dict[str, nn.Module | None] = {}
    for name, child in layer.named_children():
        if name in kept:
            children[name] = child
        elif name == row.attention_module:
            children[name] = Absent(gives_tuple=True)
        else:
            children[name] = Absent() if name == "mlp" else nn.Identity()
    object.__setattr__(view, "_modules", children)
    return view
