"""One tensor rank's share of a Hugging Face layer: local matrices, and the sums around them (Shoeybi et al. 2019).

The modules' own forwards run on the local heads and features: they take the number of heads from the shapes.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from meshwright.trainer.models.decoder import RowLinear
from meshwright.trainer.models.names import bounds, split_dim
from meshwright.trainer.models.wrapped_families import Wrapped
from meshwright.trainer.parallel.tensor_parallel import TensorGroup


class Fused(nn.Module):
    """Several matrices that a family keeps as one: their outputs lie one after the other."""

    def __init__(self, parts: dict[str, int], n_in: int, bias: bool) -> None:
        super().__init__()
        for name, n_out in parts.items():
            self.add_module(name, nn.Linear(n_in, n_out, bias=bias))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.children()], dim=-1)


class WideNorm(nn.Module):
    """A root-mean-square norm over the heads of all tensor ranks; every rank has the whole weight and uses its part."""

    def __init__(self, size: int, eps: float, tensor: TensorGroup) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps, self.tensor = eps, tensor
        self.mine = bounds(size, tensor.size, tensor.rank)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        # Each rank's squares count on every rank: summed forward, and their gradients summed backward.
        squares = self.tensor.enter(self.tensor.leave(wide.square().sum(-1, keepdim=True)))
        wide = wide * torch.rsqrt(squares / self.weight.numel() + self.eps)
        return (self.weight[self.mine[0] : self.mine[1]] * wide).to(x.dtype)


def widths(layer: nn.Module, path: str, names: tuple[str, ...], heads: tuple[int, int, int]) -> dict[str, int]:
    """Rows of the parts of a fused matrix. `heads`: of queries, of keys or values, and their size."""
    if len(names) == 3:
        queries, others, size = heads
        return dict(zip(names, (queries * size, others * size, others * size), strict=True))
    n_out = _outputs(layer.get_submodule(path))
    return dict.fromkeys(names, n_out // len(names))


def untangle(layer: nn.Module, row: Wrapped, heads: tuple[int, int, int]) -> None:
    """Bring a meta layer into the trainer's form: matrices as (output, input), fused ones in parts."""
    for path, names in row.fused.items():
        old = layer.get_submodule(path)
        bias = getattr(old, "bias", None) is not None
        layer.set_submodule(path, Fused(widths(layer, path, names, heads), _inputs(old), bias))
    for path, old in list(layer.named_modules()):
        if type(old).__name__ == "Conv1D":
            layer.set_submodule(path, nn.Linear(_inputs(old), _outputs(old)))


def shard(layer: nn.Module, row: Wrapped, heads: tuple[int, int, int], tensor: TensorGroup) -> None:
    """Cut an untangled meta layer to one tensor rank's share."""
    for path, old in list(layer.named_modules()):
        if not isinstance(old, nn.Linear):
            continue
        dim, bias = split_dim(f"{path}.weight"), old.bias is not None
        if dim == 0:
            first, last = bounds(old.out_features, tensor.size, tensor.rank)
            layer.set_submodule(path, nn.Linear(old.in_features, last - first, bias=bias))
        elif dim == 1:
            first, last = bounds(old.in_features, tensor.size, tensor.rank)
            layer.set_submodule(path, RowLinear(last - first, old.out_features, bias, tensor))
    attention = layer.get_submodule(row.attention_module)
    _local_sizes(attention, heads, tensor.size)
    if row.wide_norms:
        for name in ("q_norm", "k_norm"):
            norm: Any = attention.get_submodule(name)
            attention.set_submodule(name, WideNorm(norm.weight.numel(), norm.variance_epsilon, tensor))
    for module in (attention, layer.get_submodule("mlp")):
        module.register_forward_pre_hook(_Enter(tensor), with_kwargs=True)


class _Enter:
    """Takes the input of a sharded module from the residual stream into the sharded region."""

    def __init__(self, tensor: TensorGroup) -> None:
        self.tensor = tensor

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (self.tensor.enter(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self.tensor.enter(kwargs["hidden_states"])}


def _local_sizes(attention: Any, heads: tuple[int, int, int], size: int) -> None:
    """Numbers that an attention keeps beside its matrices and uses to take fused outputs apart."""
    attention.config = copy.copy(attention.config)
    attention.config.num_attention_heads = heads[0] // size
    for name, value in (
        ("num_heads", heads[0] // size), ("num_key_value_heads", heads[1] // size),
        ("split_size", heads[0] // size * heads[2]),
    ):  # fmt: skip
        if hasattr(attention, name):
            setattr(attention, name, value)


def _inputs(matrix: Any) -> int:
    return int(matrix.in_features if isinstance(matrix, nn.Linear) else matrix.weight.shape[0])


def _outputs(matrix: Any) -> int:
    return int(matrix.out_features if isinstance(matrix, nn.Linear) else matrix.weight.shape[1])
