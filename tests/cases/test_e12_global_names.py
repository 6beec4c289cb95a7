"""Case E12: every stage calls its layers by their global numbers, so nothing is lost or doubled."""

from pathlib import Path

import pytest
from tests.trainer.plans import TINY, cut, plan, variant

from meshwright.model.units import units_of
from meshwright.trainer.pool import Pool

pytest.importorskip("torch", reason="training needs meshwright[train]")

from tests.trainer.resuming import Leg, run
from tests.trainer.test_resuming import write_tokens
from torch.distributed.checkpoint import FileSystemReader

from meshwright.trainer.checkpoint_files import latest
from meshwright.trainer.clock import Clock
from meshwright.trainer.models.decoder import build
from meshwright.trainer.models.families import numerics
from meshwright.trainer.parallel.groups import alone
from meshwright.trainer.parallel.tensor_parallel import TensorGroup
from meshwright.trainer.spans import SpanRecorder

HALVES, FOUR = cut(TINY, 5, 5), cut(TINY, 3, 2, 2, 3)


@pytest.mark.parametrize("chunks", [2, 4])
def test_e12_48_layers_in_stages_have_the_names_of_one_process(chunks: int) -> None:
    deep = variant(layers=48)
    tensor = TensorGroup(alone(), Clock(SpanRecorder(0)))
    units = [unit.name for unit in units_of(deep)]

    def names(held: list[str]) -> list[str]:
        return [name for name, _ in build(deep, numerics(deep), tensor, held).named_parameters()]

    size = -(-len(units) // chunks)
    stages = [names(units[first : first + size]) for first in range(0, len(units), size)]
    found = [name for stage in stages for name in stage]
    assert len(found) == len(set(found))
    assert set(found) == set(names(units))
    assert {name.split(".")[2] for name in found if "layers" in name} == {str(layer) for layer in range(48)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [{"stages": HALVES, "pp": 2},
     {"stages": FOUR, "placement": (0, 1, 0, 1), "pp": 2, "vpp": 2, "schedule": "interleaved"}],
    ids=["p 2", "p 2, v 2"],
)  # fmt: skip
def test_e12_saved_in_stages_resumed_in_one_process_and_back(layout: dict, tmp_path: Path, pool: Pool) -> None:
    tokens = write_tokens(tmp_path / "tokens")
    one, staged = plan(), plan(**layout)
    straight = run(pool, Leg(one, tokens, 0, 4, target=tmp_path / "one"))
    run(pool, Leg(staged, tokens, 0, 2, target=tmp_path / "staged"))
    names = {where: set(FileSystemReader(latest(tmp_path / where)).read_metadata().state_dict_metadata)
             for where in ("one", "staged")}  # fmt: skip
    assert names["staged"] == names["one"]
    alone_again = run(pool, Leg(one, tokens, 2, 3, origin=tmp_path / "staged", target=tmp_path / "alone"))
    back = run(pool, Leg(staged, tokens, 3, 4, origin=tmp_path / "alone"))
    assert [alone_again[0].loss, back[0].loss] == pytest.approx([step.loss for step in straight[2:]], rel=2e-6)
