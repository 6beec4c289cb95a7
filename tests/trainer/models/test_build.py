"""Which model a stage is made of, what is refused before any process starts, and what works without transformers."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture
from meshwright.model.huggingface import read_config
from meshwright.trainer import unsupported as module
from meshwright.trainer.models.families import complaints, wrapped_family
from meshwright.trainer.unsupported import unsupported

from ..plans import plan
from .tiny import CONFIGS


def arch_of(name: str, path: Path) -> Architecture:
    kind, values = CONFIGS[name]
    (path / "config.json").write_text(json.dumps({"model_type": kind, **values}))
    return read_config(path)


def said(given: Plan) -> str:
    return "\n".join(map(str, unsupported(given)))


OURS = ("llama", "llama tied", "mistral", "mistral window", "qwen2", "qwen2 window", "qwen3")


@pytest.mark.parametrize("name", CONFIGS)
def test_our_decoder_where_it_computes_the_same_else_the_familys_modules(name: str, tmp_path: Path) -> None:
    arch = arch_of(name, tmp_path)
    assert (wrapped_family(arch) is None) == (name in OURS)
    assert complaints(arch) == ()


@pytest.mark.parametrize(
    ("name", "layout", "rule"),
    [
        ("mixtral", {"tp": 2}, "the trainer has no tensor parallelism for mixtral"),
        ("gemma2", {"tp": 2, "sp": True}, "tensor parallelism without sequence parallelism for gemma2"),
        ("llama yarn", {"tp": 2, "sp": True}, "tensor parallelism without sequence parallelism for llama"),
        ("gpt2", {"seq_len": 65}, "the model has a table of 64 positions"),
    ],
)
def test_what_a_family_cannot_do_is_refused_early(name: str, layout: dict[str, Any], rule: str, tmp_path: Path) -> None:
    arch = arch_of(name, tmp_path)
    assert rule in said(plan(arch=arch, **layout))
    assert said(plan(arch=arch)) == ""


def test_a_shape_that_is_not_the_config_jsons_is_refused(tmp_path: Path) -> None:
    arch = replace(arch_of("gemma2", tmp_path), layers=3)
    assert "model.layers = 3: differs from the model's config.json (4)" in said(plan(arch=arch))


def test_a_family_without_its_config_json_is_refused() -> None:
    arch = replace(plan().setup.proposal.arch, family="gemma2")
    assert "a gemma2 model is built from its config.json" in said(plan(arch=arch))


def test_without_transformers_only_our_decoder_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert "transformers' modules, which are not installed" in said(plan(arch=arch_of("gpt2", tmp_path)))
    assert said(plan(arch=arch_of("llama", tmp_path))) == ""


def test_a_rank_of_our_decoder_never_imports_transformers() -> None:
    pytest.importorskip("torch", reason="training needs meshwright[train]")
    code = (
        "import sys, meshwright.trainer.worker\n"
        "from meshwright.trainer.weights import whole_shapes\n"
        "from meshwright.model.architecture import Architecture\n"
        "whole_shapes(Architecture('m', 'llama', 2, 64, 4, 2, 16, 176, 256))\n"
        "assert 'transformers' not in sys.modules, 'imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
