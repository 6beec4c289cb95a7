"""Which parameters belong to which unit, told by their global names."""

from collections.abc import Iterable

from torch import nn

from meshwright.model.architecture import Architecture
from meshwright.trainer.models.names import split_dim
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.models.wrapped_families import unit_of as unit_in_family


def unit_of(name: str, arch: Architecture) -> str:
    """The unit of a parameter: `model.layers.7.mlp.up_proj.weight` of a Llama is in `layers.7.ffn`."""
    return unit_in_family(name, arch.family, arch.parallel_residual)


def unit_parameters(model: StageModel) -> dict[str, dict[str, tuple[nn.Module, str]]]:
    """For each unit of a stage, in forward order, its parameters by global name: the owning module and the attribute.

    A parameter that two units share is in both.
    """
    found: dict[str, dict[str, tuple[nn.Module, str]]] = {unit: {} for unit in model.units}
    for module_name, module in model.named_modules():
        for attribute, _ in module.named_parameters(recurse=False):
            name = f"{module_name}.{attribute}"
            found[unit_of(name, model.arch)][name] = (module, attribute)
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


def matrix_sizes(models: Iterable[StageModel]) -> dict[str, float]:
    """Elements of the matrices of each unit: their share of a weight-gradient pass."""
    sizes: dict[str, float] = {}
    for model in models:
        sizes |= dict.fromkeys(model.units, 0.0)
        for name, parameter in model.named_parameters():
            if split_dim(name) is not None and "embed_tokens" not in name:
                unit = unit_of(name, model.arch)
                sizes[unit] = sizes.get(unit, 0.0) + parameter.numel()
    return sizes
