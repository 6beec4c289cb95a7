"""The recipe: what a rank builds from a plan, in the order in which the techniques apply."""

from dataclasses import dataclass

import torch
from torch import nn

from meshwright.files.plan import Plan
from meshwright.layout.recomputed import recomputed_units
from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.model.units import units_of
from meshwright.trainer.clock import Clock, UnitMeter
from meshwright.trainer.models.decoder import Decoder, build
from meshwright.trainer.models.families import numerics
from meshwright.trainer.models.initial import initialize
from meshwright.trainer.parallel.data_parallel import GradientBuckets
from meshwright.trainer.parallel.mesh import Mesh
from meshwright.trainer.parallel.pipeline import Pipe, build_pipe
from meshwright.trainer.parallel.recompute import unit_runner
from meshwright.trainer.parallel.tensor_parallel import TensorGroup


@dataclass(frozen=True)
class Parts:
    """What one rank trains with."""

    models: tuple[tuple[int, Decoder], ...]  # (stage, its model), in forward order
    parameters: dict[str, nn.Parameter]  # by global name, each once
    buckets: GradientBuckets
    pipe: Pipe


def parallelize(plan: Plan, mesh: Mesh, clock: Clock, meter: UnitMeter, device: torch.device) -> Parts:
    """Build this rank's part of the model with its initial weights, and everything that makes it train.

    Raises InputError for a model that the trainer's decoder cannot represent.
    """
    layout, setup = plan.layout, plan.setup.proposal
    rules = numerics(setup.arch)
    # Tensor parallel: each rank builds its share of every parameter.
    tensor = TensorGroup(mesh.tp, clock, layout.sp and layout.tp > 1)
    held = _stages_of_rank(plan, mesh.pp.rank)
    models = tuple((stage, build(setup.arch, rules, tensor, units)) for stage, units in held)
    again = recomputed_units(layout)
    for _, model in models:
        initialize(model, device, setup.training.seed)
        model.dtype = torch.bfloat16 if setup.training.precision == "bf16" else torch.float32
        # Recompute: units that keep only their input.
        model.run = unit_runner(meter, again)
    _tie_locally(models)
    parameters = named_parameters(models)
    # Data parallel: gradients in buckets.
    # (Weight gradients of a halved backward arrive unannounced, so that no bucket knows when it is full.)
    overlap = layout.overlap and (layout.pp == 1 or layout.schedule not in SPLIT_BACKWARD)
    buckets = GradientBuckets(list(parameters.values()), layout.bucket_mib, overlap, mesh.dp, clock)
    # Pipeline: the stages under their schedule.
    return Parts(models, parameters, buckets, build_pipe(plan, models, mesh, clock, meter))


def _stages_of_rank(plan: Plan, pipeline_rank: int) -> list[tuple[int, tuple[str, ...]]]:
    layout = plan.layout
    if layout.pp == 1:  # stages on one rank that follow each other are one stage
        return [(0, tuple(unit.name for unit in units_of(plan.setup.proposal.arch)))]
    return [(stage, layout.stages[stage]) for stage in layout.stages_of(pipeline_rank)]


def _tie_locally(models: tuple[tuple[int, Decoder], ...]) -> None:
    """A tied embedding and output matrix on one rank are one parameter, also when they lie in two stages."""
    first = next((model for _, model in models if model.has_embedding), None)
    last = next((model for _, model in models if model.has_head), None)
    if first is not None and last is not None and first.arch.tied:
        last.lm_head.weight = first.model.embed_tokens.weight


def named_parameters(models: tuple[tuple[int, Decoder], ...]) -> dict[str, nn.Parameter]:
    """All parameters of a rank by global name; a tied one appears once, as the embedding."""
    found: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    for _, model in models:
        for name, parameter in model.named_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                found[name] = parameter
    return found
