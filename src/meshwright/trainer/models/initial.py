"""Initial weights that do not depend on the layout: each parameter is drawn whole, by its own name, then cut."""

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from meshwright.model.architecture import Architecture
from meshwright.trainer.models.decoder import Decoder
from meshwright.trainer.models.names import bounds, split_dim
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


def draw(name: str, shape: tuple[int, ...], seed: int, std: float) -> Tensor:
    """The whole initial parameter: ones for norms, zeros for biases, else normal with `std`; by seed and name only."""
    if name.endswith(".bias"):
        return torch.zeros(shape)
    if len(shape) == 1:
        return torch.ones(shape)
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


def materialize(model: Decoder, device: torch.device, whole: Callable[[str, tuple[int, ...]], Tensor]) -> None:
    """Give a meta model storage on `device`, filled from `whole(name, global shape)`, cut to this tensor rank."""
    arch, tensor = model.arch, model.tensor
    filled: dict[int, nn.Parameter] = {}
    for module_name, module in model.named_modules():
        for kind, empty in list(module.named_parameters(recurse=False)):
            if id(empty) in filled:
                setattr(module, kind, filled[id(empty)])  # a tied matrix stays one parameter
                continue
            name = f"{module_name}.{kind}"
            value = whole(source_name(name, arch), global_shape(empty, name, arch, tensor))
            parameter = nn.Parameter(share(value, name, tensor).to(device).clone())
            filled[id(empty)] = parameter
            setattr(module, kind, parameter)


def initialize(model: Decoder, device: torch.device, seed: int) -> None:
    """Give a meta model its initial weights."""
    std = model.rules.initializer_range
    materialize(model, device, lambda name, shape: draw(name, shape, seed, std))
