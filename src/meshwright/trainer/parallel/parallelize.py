"""The recipe: what a rank builds from a plan, in the order in which the techniques apply."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from meshwright.files.plan import Plan
from meshwright.layout.recomputed import recomputed_units
from meshwright.model.training import Precision
from meshwright.model.units import units_of
from meshwright.trainer.clock import Clock, UnitMeter
from meshwright.trainer.models.build import build
from meshwright.trainer.models.initial import initialize
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.parallel.data_parallel import Replicas, share_states
from meshwright.trainer.parallel.fully_sharded import FullySharded
from meshwright.trainer.parallel.mesh import Mesh
from meshwright.trainer.parallel.pipeline import Pipe, build_pipe
from meshwright.trainer.parallel.recompute import unit_runner
from meshwright.trainer.parallel.tensor_parallel import TensorGroup
from meshwright.trainer.parallel.units import matrix_sizes, named_parameters
from meshwright.trainer.weights import Weights

_COMPUTE: Mapping[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Parts:
    """What one rank trains with."""

    models: tuple[tuple[int, StageModel], ...]  # (stage, its model), in forward order
    replicas: Replicas
    rows: dict[str, int]  # of each whole parameter of this tensor rank, by global name
    pipe: Pipe

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The weights that this rank holds between steps, by global name, each once."""
        return self.replicas.parameters

    @property
    def owned(self) -> Mapping[str, nn.Parameter]:
        """What this rank's optimizer updates, by global name."""
        return self.replicas.owned


def parallelize(
    plan: Plan, mesh: Mesh, clock: Clock, meter: UnitMeter, device: torch.device, weights: Weights | None = None
) -> Parts:
    """Build this rank's part of the model with its initial weights (random, or out of `weights`), and everything that
    makes it train.

    Raises InputError for a model that the trainer cannot represent.
    """
    layout, setup = plan.layout, plan.setup.proposal
    # Tensor parallel: each rank builds its share of every parameter.
    tensor = TensorGroup(mesh.tp, clock, layout.sp and layout.tp > 1)
    held = _stages_of_rank(plan, mesh.pp.rank)
    models = tuple((stage, build(setup.arch, tensor, units)) for stage, units in held)
    for _, model in models:
        if weights is None:
            initialize(model, device, setup.training.seed)
        else:
            weights.fill(model, device)
        model.dtype = _COMPUTE[setup.training.precision]
    _tie_locally(models)
    meter.weights = matrix_sizes([model for _, model in models])
    rows = {name: len(p) for name, p in named_parameters([model for _, model in models]).items()}
    # Data parallel: who holds and updates what, and how gradients are exchanged.
    replicas = share_states(models, layout, mesh, clock)
    gathered = replicas.modules if isinstance(replicas, FullySharded) else {}
    # Recompute: units that keep their input, or that and their products, inside what gathers their parameters.
    for _, model in models:
        model.run = unit_runner(meter, recomputed_units(layout), gathered, layout.recompute == "selective")
    # Pipeline: the stages under their schedule.
    pipe = build_pipe(plan, models, mesh, clock, meter, replicas.after_backward)
    return Parts(models, replicas, rows, pipe)


def _stages_of_rank(plan: Plan, pipeline_rank: int) -> list[tuple[int, tuple[str, ...]]]:
    layout = plan.layout
    if layout.pp == 1:  # stages on one rank that follow each other are one stage
        return [(0, tuple(unit.name for unit in units_of(plan.setup.proposal.arch)))]
    return [(stage, layout.stages[stage]) for stage in layout.stages_of(pipeline_rank)]


def _tie_locally(models: tuple[tuple[int, StageModel], ...]) -> None:
    """A tied embedding and output matrix on one rank are one parameter, also when they lie in two stages."""
    first = next((model for _, model in models if model.has_embedding), None)
    last = next((model for _, model in models if model.has_head), None)
    if first is not None and last is not None and first.arch.tied:
        embedding: Any = first.model.embed_tokens
        last.lm_head.weight = embedding.weight
