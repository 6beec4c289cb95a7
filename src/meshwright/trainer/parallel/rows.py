"""Which rows of a parameter each of several ranks holds, and how the ranks' rows lie together in one message."""

from collections.abc import Sequence

import torch
from torch import Tensor


def own_rows(whole: Tensor, size: int, rank: int) -> Tensor:
    """The view of `whole` that `rank` of `size` holds: rows as `torch.chunk` cuts them, perhaps fewer, perhaps none."""
    width = -(-whole.shape[0] // size)
    first = min(whole.shape[0], rank * width)
    return whole[first : min(whole.shape[0], first + width)]


def row_elements(whole: Tensor, size: int) -> int:
    """Elements of the largest piece."""
    return -(-whole.shape[0] // size) * (whole.numel() // max(1, whole.shape[0]))


def pack(wholes: Sequence[Tensor | None], widths: Sequence[int], size: int, like: Tensor) -> Tensor:
    """Whole tensors as [size, sum of widths]: line r holds the rows of rank r of each, padded with zeros. None: zeros.

    Rows of a rank follow each other in memory, so a tensor is cut as if it were flat.
    """
    packed = like.new_zeros((size, sum(widths)))
    for whole, part in zip(wholes, torch.split(packed, list(widths), dim=1), strict=True):
        if whole is not None:
            _copy(whole.reshape(-1), part, into_part=True)
    return packed


def unpack(packed: Tensor, wholes: Sequence[Tensor], widths: Sequence[int]) -> None:
    """Fill contiguous whole tensors from what `pack` would make of them."""
    for whole, part in zip(wholes, torch.split(packed, list(widths), dim=1), strict=True):
        _copy(whole.view(-1), part, into_part=False)


def _copy(flat: Tensor, part: Tensor, into_part: bool) -> None:
    """Between a flat tensor and its lines [size, width], the last of which may be cut short."""
    width = part.shape[1]
    lines, rest = divmod(flat.numel(), width)
    pairs = [(flat[: lines * width].view(lines, width), part[:lines])]
    if rest:
        pairs.append((flat[lines * width :], part[lines, :rest]))
    for a, b in pairs:
        b.copy_(a) if into_part else a.copy_(b)
