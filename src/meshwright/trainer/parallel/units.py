"""Which parameters belong to which unit, told by their global names."""

from collections.abc import Iterable

from torch import nn

from meshwright.trainer.models.decoder import Decoder
from meshwright.trainer.models.names import split_dim


def unit_of(name: str) -> str:
    """The unit of a parameter with a Hugging Face name: `model.layers.7.mlp.up_proj.weight` is in `layers.7.ffn`."""
    parts = name.split(".")
    if parts[0] == "lm_head" or parts[1] == "norm":
        return "head"
    if parts[1] == "embed_tokens":
        return "embed"
    return f"layers.{parts[2]}." + ("attn" if parts[3] in ("self_attn", "input_layernorm") else "ffn")


def unit_parameters(model: Decoder) -> dict[str, dict[str, tuple[nn.Module, str]]]:
    """For each unit of a stage, in forward order, its parameters by global name: the owning module and the attribute.

    A parameter that two units share is in both.
    """
    found: dict[str, dict[str, tuple[nn.Module, str]]] = {unit: {} for unit in model.units}
    for module_name, module in model.named_modules():
        for attribute, _ in module.named_parameters(recurse=False):
            name = f"{module_name}.{attribute}"
            found[unit_of(name)][name] = (module, attribute)
    return found


def named_parameters(models: Iterable[nn.Module]) -> dict[str, nn.Parameter]:
    """All parameters by global name; a tied one appears once, under the name that comes first."""
    found: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    for model in models:
        for name, parameter in model.named_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                found[name] = parameter
    return found


def matrix_sizes(models: Iterable[Decoder]) -> dict[str, float]:
    """Elements of the matrices of each unit: their share of a weight-gradient pass."""
    sizes: dict[str, float] = {}
    for model in models:
        sizes |= dict.fromkeys(model.units, 0.0)
        for name, parameter in model.named_parameters():
            if split_dim(name) is not None and "embed_tokens" not in name:
                sizes[unit_of(name)] = sizes.get(unit_of(name), 0.0) + parameter.numel()
    return sizes
