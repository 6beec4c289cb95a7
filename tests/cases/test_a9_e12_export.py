"""Cases A9 and E12: the folder that training leaves has the model's own rows and all of its layers."""

from pathlib import Path
from typing import Any

import pytest
from tests.trainer.plans import TINY, cut, plan, variant

from meshwright.model.huggingface import read_config
from meshwright.trainer.pool import Pool
from meshwright.trainer.weights_files import stored_tensors

torch = pytest.importorskip("torch", reason="training needs meshwright[train]")
pytest.importorskip("transformers")

from tests.trainer.exporting import Trip, logits, run  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_a9_vocabulary_that_does_not_divide_keeps_its_own_rows(tied: bool, tmp_path: Path, pool: Pool) -> None:
    """255 rows on two tensor ranks, written, read by one process, written again; a model without a config.json."""
    arch = variant(vocab=255, tied=tied)
    run(pool, Trip(plan(arch=arch, tp=2), None, tmp_path / "two", steps=1))
    run(pool, Trip(plan(arch=arch), tmp_path / "two", tmp_path / "one"))
    shapes = {name: entry.shape for name, entry in stored_tensors(tmp_path / "one").items()}
    assert shapes["model.embed_tokens.weight"] == (255, 64)
    assert ("lm_head.weight" in shapes) is not tied
    found = logits(tmp_path / "two", 255)
    assert found.shape[-1] == 255  # no padded row is there to win
    assert torch.equal(found, logits(tmp_path / "one", 255))
    assert read_config(tmp_path / "two").vocab == 255


@pytest.mark.slow
def test_e12_exported_from_stages_the_model_has_every_layer_once(tmp_path: Path, pool: Pool) -> None:
    layouts: dict[str, dict[str, Any]] = {
        "one": {},
        "p 2": {"stages": cut(TINY, 5, 5), "pp": 2},
        "p 2, v 2": {"stages": cut(TINY, 3, 2, 2, 3), "placement": (0, 1, 0, 1), "pp": 2, "vpp": 2,
                     "schedule": "interleaved"},
    }  # fmt: skip
    for label, layout in layouts.items():
        run(pool, Trip(plan(**layout), None, tmp_path / label))
    expected = stored_tensors(tmp_path / "one")
    assert len(expected) == 4 * 9 + 3  # nine tensors a layer, the embedding, the last norm and the output matrix
    for label in layouts:
        assert stored_tensors(tmp_path / label).keys() == expected.keys()
        assert torch.equal(logits(tmp_path / label, TINY.vocab), logits(tmp_path / "one", TINY.vocab))
