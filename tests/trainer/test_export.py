"""Folders of weights: read by any layout, trained, written, and loaded by transformers with equal logits."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshwright.basics.errors import InputError, RunFailed
from meshwright.files.strict_json import dump
from meshwright.model.units import units_of
from meshwright.trainer.models.wrapped_families import WRAPPED
from meshwright.trainer.pool import Pool
from meshwright.trainer.weights_files import INDEX, stored_tensors

from .models.tiny import folder
from .plans import TINY, cut, plan

torch = pytest.importorskip("torch", reason="training needs meshwright[train]")
transformers = pytest.importorskip("transformers")

from meshwright.trainer.export import Writer  # noqa: E402
from meshwright.trainer.weights import Weights, whole_shapes  # noqa: E402

from .exporting import Trip, logits, run  # noqa: E402
from .test_decoder import tensor_group  # noqa: E402

SHORT = {"seq_len": 24, "micro_batch": 2, "global_batch": 8}


def write_numbers(path: Path, vocab: int) -> None:
    """Prepared tokens without a text."""
    path.mkdir()
    (np.arange(4000) % vocab).astype(np.uint16).tofile(path / "tokens.bin")
    header = {"dtype": "uint16", "count": 4000, "vocab": vocab, "documents": 1, "text_bytes": 9000, "corpus": "numbers"}
    dump(header, path / "header.json")


def through(name: str, tmp_path: Path) -> list[Trip]:
    """A family's folder in, unchanged weights out, by one process, by tensor ranks (or ZeRO-3) and by a pipeline."""
    arch = folder(name, tmp_path / "given")
    units = len(units_of(arch))
    first = units // 2 + (not arch.parallel_residual and units // 2 % 2)
    layouts: dict[str, dict[str, Any]] = {
        "pp": {"stages": cut(arch, first, units - first), "pp": 2},
        "tp": {"tp": 2} if WRAPPED[arch.family].tensor else {"dp": 2, "zero": 3},
    }
    return [
        Trip(plan(arch=arch, **SHORT, **layout), tmp_path / "given", tmp_path / label, file_bytes=20_000)
        for label, layout in layouts.items()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama tied", "gemma2", "phi3", "gpt2", "gpt_neox", "olmo2", "mixtral"])
def test_e12_a_familys_folder_in_and_out_has_equal_tensors_and_logits(name: str, tmp_path: Path, pool: Pool) -> None:
    for trip in through(name, tmp_path):
        run(pool, trip)
        given, written = stored_tensors(tmp_path / "given"), stored_tensors(trip.target)
        assert {stored: entry.shape for stored, entry in written.items()} == {
            stored: entry.shape for stored, entry in given.items()
        }
        vocab = trip.plan.setup.proposal.arch.vocab
        assert torch.equal(logits(trip.target, vocab), logits(tmp_path / "given", vocab))


@pytest.mark.slow
def test_continued_training_is_the_same_in_every_layout(tmp_path: Path, pool: Pool) -> None:
    arch = folder("gpt2", tmp_path / "given")
    layouts: dict[str, dict[str, Any]] = {
        "one": {}, "four": {"tp": 2, "stages": cut(arch, 4, 6), "pp": 2}, "sharded": {"dp": 2, "zero": 2},
    }  # fmt: skip
    found = {
        label: run(pool, Trip(plan(arch=arch, **SHORT, **layout), tmp_path / "given", tmp_path / label, steps=3))
        for label, layout in layouts.items()
    }
    assert found["four"] == pytest.approx(found["one"], rel=1e-5)
    assert found["sharded"] == pytest.approx(found["one"], rel=1e-5)
    assert found["one"][-1] < found["one"][0] - 0.01
    expected = logits(tmp_path / "one", arch.vocab)
    for label in layouts:
        torch.testing.assert_close(logits(tmp_path / label, arch.vocab), expected, rtol=1e-3, atol=1e-3)


def test_e12_a_parameter_that_no_rank_has_or_two_have_stops_the_export(tmp_path: Path) -> None:
    """A stage that called its first layer 0 would write half of the model; nothing appears under the folder's name."""
    shapes = whole_shapes(TINY)
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    lost = [name for name in arrays if name.startswith(("model.layers.2.", "model.layers.3."))]
    for again, said in ((False, f"{len(lost)} are missing: model.layers.2."), (True, "came twice: model.layers.0.")):
        writer = Writer(TINY, tmp_path / "out", 2**30)
        writer.add({name: array for name, array in arrays.items() if name not in lost})
        if again:
            writer.add({name: array for name, array in arrays.items() if name.startswith("model.layers.0.")})
        with pytest.raises(RunFailed, match=said):
            writer.finish()
    with pytest.raises(RunFailed, match=r"model.norm.weight came out as \(1,\)"):
        writer.add({"model.norm.weight": np.zeros(1, np.float32)})
    assert not (tmp_path / "out").exists()


def test_what_a_folder_lacks_and_has_too_much_is_listed(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    arch = folder("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.9.mlp.up_proj.weight"] = tensors.pop("model.layers.3.mlp.up_proj.weight")
    tensors["model.norm.weight"] = torch.ones(31)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)  # older folders have it
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(InputError) as caught:
        Weights(tmp_path, arch)
    assert {complaint.field: complaint.rule.split(",")[0] for complaint in caught.value.complaints} == {
        "model.layers.3.mlp.up_proj.weight": "is not in the folder",
        "model.layers.9.mlp.up_proj.weight": "is in the folder",
        "model.norm.weight": "has shape (31",
    }


def test_each_tensor_rank_reads_its_share_of_fused_and_transposed_matrices(tmp_path: Path) -> None:
    arch = folder("gpt2", tmp_path)
    weights = Weights(tmp_path, arch)
    for name, shape in whole_shapes(arch).items():
        whole = weights.read(name, shape, tensor_group())
        halves = [weights.read(name, shape, tensor_group(2, rank)) for rank in range(2)]
        if halves[0].shape == whole.shape:
            assert torch.equal(halves[0], whole)
            continue
        dim = next(index for index in range(whole.ndim) if halves[0].shape[index] != whole.shape[index])
        assert torch.equal(torch.cat(halves, dim), whole)


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("gpt2", lambda stored: stored.removeprefix("transformer.")),
        ("gpt_neox", lambda stored: stored.replace("embed_out", "lm_head")),
        ("llama", lambda stored: f"language_model.{stored}"),
        ("gemma3", lambda stored: stored.replace("model.", "model.language_model.")),
    ],
    ids=["without the model around it", "of another version", "part of a larger model", "part of a newer one"],
)
def test_names_that_published_folders_use(name: str, renamed: Callable[[str], str], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    arch = folder(name, tmp_path)
    shapes, file = whole_shapes(arch), tmp_path / "model.safetensors"
    wanted = {own: Weights(tmp_path, arch).read(own, shape, tensor_group()) for own, shape in shapes.items()}
    tensors = {renamed(stored): tensor for stored, tensor in load_file(file).items()}
    if "language_model" in "".join(tensors):
        tensors["vision_tower.weight"] = torch.ones(2)
        config = json.loads((tmp_path / "config.json").read_text())
        whole = {"model_type": "gemma3" if name == "gemma3" else "llava", "text_config": config}
        (tmp_path / "config.json").write_text(json.dumps(whole))
    save_file(tensors, file, {"format": "pt"})
    for own, shape in shapes.items():
        assert torch.equal(Weights(tmp_path, arch).read(own, shape, tensor_group()), wanted[own])


def test_damaged_folders_are_refused_by_their_headers(tmp_path: Path) -> None:
    arch = folder("llama", tmp_path / "given")
    file = tmp_path / "given" / "model.safetensors"
    for label, change, said in (
        ("empty", lambda path: path.unlink(), "holds no safetensors"),
        ("short", lambda path: path.write_bytes(file.read_bytes()[:-10]), "cut short"),
        ("nonsense", lambda path: path.write_bytes(b"\x05" * 4), "not a whole safetensors file"),
    ):
        shutil.copytree(tmp_path / "given", tmp_path / label)
        change(tmp_path / label / file.name)
        with pytest.raises(InputError, match=said):
            Weights(tmp_path / label, arch)
    shutil.copytree(tmp_path / "given", tmp_path / "index")
    (tmp_path / "index" / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": "gone.safetensors"}}))
    with pytest.raises(InputError, match="there is no such file"):
        Weights(tmp_path / "index", arch)


@pytest.mark.slow
def test_a_run_starts_from_a_folder_and_leaves_one(tmp_path: Path) -> None:
    """Two steps that change next to nothing: the model that was given, and the notes that its config.json deserves."""
    from meshwright.trainer.launch import train
    from meshwright.trainer.options import Phase, TrainOptions

    arch = folder("qwen3", tmp_path / "given")
    write_numbers(tmp_path / "tokens", arch.vocab)
    asked = plan(arch=arch, training={"lr": 1e-9}, **SHORT)
    said: list[str] = []
    options = TrainOptions(
        tmp_path / "runs" / "demo",
        (Phase("measured", 2),),
        tmp_path / "tokens",
        weights=tmp_path / "given",
        export=True,
    )
    result = train(asked, options, said.append)
    assert result.steps == 2
    written = logits(tmp_path / "runs" / "demo" / "model", arch.vocab)
    torch.testing.assert_close(written, logits(tmp_path / "given", arch.vocab), rtol=1e-4, atol=1e-4)
    train(asked, replace(options, weights=None, export=False), said.append)
    assert any(line.startswith("note: random weights; to go on") for line in said)
