"""Each family trains as one process does, in every kind of layout that it can have: real gloo processes, fp32."""

from pathlib import Path
from typing import Any

import pytest

from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture
from meshwright.model.units import units_of
from meshwright.trainer.models.families import wrapped_family
from meshwright.trainer.models.wrapped_families import WRAPPED
from meshwright.trainer.parity import parity
from meshwright.trainer.pool import Pool

from ..plans import cut, plan
from .tiny import config_folder

pytest.importorskip("transformers")

WHOLE = ["mistral window", "qwen2 window", "gemma2", "gemma3", "phi3", "gpt2", "gpt_neox", "olmo2", "mixtral"]


def layouts(arch: Architecture) -> list[Plan]:
    """Replicas, sharded states, tensor ranks, and a pipeline whose boundary falls inside a layer."""
    units = len(units_of(arch))
    first = units // 2 + (not arch.parallel_residual and units // 2 % 2)  # embedding, whole layers and an attention
    base: dict[str, Any] = {"arch": arch, "seq_len": 24, "micro_batch": 2, "global_batch": 8}
    found = [
        plan(f"{arch.family}, ZeRO-3", dp=2, zero=3, **base),
        plan(f"{arch.family}, pp", stages=cut(arch, first, units - first), pp=2, recompute="selective", **base),
    ]
    if WRAPPED[arch.family].tensor:
        sp = wrapped_family(arch) is None
        found.append(plan(f"{arch.family}, tp", tp=2, sp=sp, recompute="full", **base))
    if arch.family in ("gpt2", "gpt_neox"):  # fused matrices, tied ends, parallel halves: everything at once
        stages = cut(arch, first, units - first)
        found.append(plan(f"{arch.family}, tp and pp", tp=2, stages=stages, pp=2, zero=1, **base))
    if arch.tied and not arch.parallel_residual:  # both ends on one rank, backwards in two halves
        vee = {"stages": cut(arch, 3, 2, 2, units - 7), "placement": (0, 1, 1, 0), "pp": 2, "vpp": 2}
        found.append(plan(f"{arch.family}, zbv", schedule="zbv", **vee, **base))
    return found


@pytest.mark.slow
def test_families_train_as_one_process(tmp_path: Path, pool: Pool) -> None:
    plans = [made for name in WHOLE for made in layouts(config_folder(name, tmp_path / name))]
    found = parity(plans, steps=3, pool=pool)
    assert found.first_difference is None
    for row in found.table:
        assert row.losses[-1] < row.losses[0] - 0.003  # it trains: a frozen model would be equal, too
