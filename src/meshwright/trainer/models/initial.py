"""Initial weights that do not depend on the layout: each parameter is drawn whole, by its own name, then cut."""

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from meshwright.model.architecture import Architecture
from meshwright.trainer.models.names import bounds, split_dim
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.parallel.tensor_parallel import TensorGroup


def global_shape(local: Tensor, name: str, arch: Architecture, tensor: TensorGroup) -> tuple[int, ...]:
    """The shape of the whole parameter of which `local` is one tensor rank's share."""
    shape, dim = list(local.shape), split_dim(name)
    if dim is None or tensor.size == 1:
        return tuple(shape)
    module = name.split(".")[-2]
    whole = {
        "embed_tokens": arch.vocab, "lm_head": arch.vocab,
        "q_proj": arch.heads * arch.head_dim, "o_proj": arch.heads * arch.head_dim,
        "k_proj": arch.kv_heads * arch.head_dim, "v_proj": arch.kv_heads * arch.head_dim,
    }  # fmt: skip
    shape[dim] = whole.get(module, arch.ffn_hidden)
    return tuple(shape)


def draw(name: str, shape: tuple[int, ...], seed: int, std: float, norm: float = 1.0) -> Tensor:
    """The whole initial parameter by seed and name only: `norm` for norms, 0 for biases, else normal with `std`."""
    if name.endswith(".bias"):
        return torch.zeros(shape)
    if len(shape) == 1:
        return torch.full(shape, norm)
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.empty(shape).normal_(0.0, std, generator=generator)


def share(whole: Tensor, name: str, tensor: TensorGroup) -> Tensor:
    """One tensor rank's part of a whole parameter."""
    dim = split_dim(name)
    if dim is None or tensor.size == 1:
        return whole
    first, last = bounds(whole.shape[dim], tensor.size, tensor.rank)
    return whole.narrow(dim, first, last - first)


def source_name(name: str, arch: Architecture) -> str:
    """Where a parameter's value comes from: a tied output matrix is the embedding."""
    return "model.embed_tokens.weight" if arch.tied and name == "lm_head.weight" else name


def fill(model: StageModel, device: torch.device, piece: Callable[[str, tuple[int, ...]], Tensor]) -> None:
    """Give a meta model storage on `device`, filled from `piece(name, global shape)`, this tensor rank's part of it."""
    filled: dict[int, nn.Parameter] = {}
    for module_name, module in model.named_modules():
        for kind, empty in list(module.named_parameters(recurse=False)):
            if id(empty) in filled:
                setattr(module, kind, filled[id(empty)])  # a tied matrix stays one parameter
                continue
            name = f"{module_name}.{kind}"
            value = piece(source_name(name, model.arch), model.whole_shape(name, empty))
            parameter = nn.Parameter(value.to(device).clone(memory_format=torch.contiguous_format))
            filled[id(empty)] = parameter
            setattr(module, kind, parameter)


def materialize(model: StageModel, device: torch.device, whole: Callable[[str, tuple[int, ...]], Tensor]) -> None:
    """As `fill`, from whole parameters `whole(name, global shape)`."""
    fill(model, device, lambda name, shape: share(whole(name, shape), name, model.tensor))


def initialize(model: StageModel, device: torch.device, seed: int) -> None:
    """Give a meta model its initial weights."""
    std, norm = model.initializer_range, model.norm_start
    materialize(model, device, lambda name, shape: draw(name, shape, seed, std, norm))
