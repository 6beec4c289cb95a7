"""Which of the trainer's models a stage is made of."""

from collections.abc import Sequence

import torch

from meshwright.model.architecture import Architecture
from meshwright.trainer.models.decoder import Decoder
from meshwright.trainer.models.families import numerics, wrapped_family
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.parallel.tensor_parallel import TensorGroup


def build(arch: Architecture, tensor: TensorGroup, units: Sequence[str]) -> StageModel:
    """A model without storage (on the meta device), for the units of one stage and one tensor rank.

    Our decoder where it computes what the family's does, else the family's Hugging Face modules. Raises InputError for
    a model that is neither.
    """
    if wrapped_family(arch):
        from meshwright.trainer.models.wrapped import build_wrapped

        return build_wrapped(arch, tensor, units)
    rules = numerics(arch)
    with torch.device("meta"):
        return Decoder(arch, rules, tensor, units)
