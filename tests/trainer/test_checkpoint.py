"""Checkpoints: what is saved comes back, under another layout too; damaged or unfinished ones are never loaded."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.trainer.checkpoint_files import folder_of, latest, read_manifest

torch = pytest.importorskip("torch")

from meshwright.trainer.checkpoint import load, load_latest, save, training_state  # noqa: E402

from .checkpoint_ranks import STEPS, build, step, trained  # noqa: E402

SCRIPT = Path(__file__).with_name("checkpoint_ranks.py")


def two_ranks(tmp_path: Path, checkpoints: Path, verb: str) -> list[str]:
    """The output of each of two ranks; fails with their errors."""
    store = tmp_path / f"store-{verb}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), str(store), str(checkpoints), verb],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors for _, errors in said)
    return [out for out, _ in said]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint folder with the state after three steps, saved by one process."""
    parameters, optimizer = build(seed=1)
    for number in range(STEPS):
        step(parameters, optimizer, number)
    save(STEPS, training_state(parameters, optimizer), tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def test_training_goes_on_bitwise_as_if_uninterrupted(saved: Path) -> None:
    parameters, optimizer = build(seed=2)
    assert load_latest(training_state(parameters, optimizer), saved) == STEPS
    for number in range(STEPS, STEPS + 2):
        step(parameters, optimizer, number)
    for name, expected in trained(STEPS + 2).items():
        torch.testing.assert_close(parameters[name], expected, rtol=0, atol=0)
    state = optimizer.state[parameters["norm.weight"]]
    assert state["step"] == STEPS + 2


def test_making_optimizer_state_changes_nothing() -> None:
    parameters, optimizer = build(seed=1)
    gradient = torch.ones(6)
    parameters["norm.weight"].grad = gradient
    state = training_state(parameters, optimizer)
    assert len(state) == 4 * (1 + 3)  # weight, exp_avg, exp_avg_sq, step
    for name, expected in build(seed=1)[0].items():
        torch.testing.assert_close(parameters[name], expected, rtol=0, atol=0)
    assert parameters["norm.weight"].grad is gradient
    assert parameters["q_proj.weight"].grad is None
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert all(float(value.abs().sum()) == 0 for name, value in state.items() if name.startswith("optimizer."))


def test_both_copies_of_a_tied_matrix_are_loaded_from_one(saved: Path) -> None:
    first, last = (torch.nn.Parameter(torch.zeros(7, 6)) for _ in range(2))
    for name, copy in (("embed_tokens.weight", first), ("lm_head.weight", last)):  # on different pipeline ranks
        optimizer = torch.optim.AdamW([copy])
        state = training_state({name: copy}, optimizer, same_as={"lm_head.weight": "embed_tokens.weight"})
        assert load_latest(state, saved) == STEPS
        torch.testing.assert_close(copy, trained(STEPS)["embed_tokens.weight"], rtol=0, atol=0)
        assert optimizer.state[copy]["exp_avg"].abs().sum() > 0


def test_a_step_saved_twice_stays_as_it_was(saved: Path) -> None:
    before = read_manifest(folder_of(saved, STEPS))
    parameters, optimizer = build(seed=9)
    assert save(STEPS, training_state(parameters, optimizer), saved) == folder_of(saved, STEPS)
    assert read_manifest(folder_of(saved, STEPS)) == before


def test_the_newest_complete_checkpoint_is_found(saved: Path) -> None:
    parameters, optimizer = build(seed=1)
    save(12, training_state(parameters, optimizer), saved)
    shutil.copytree(folder_of(saved, 12), folder_of(saved, 40))
    (folder_of(saved, 40) / "manifest.json").unlink()  # as when the machine died between two files
    (saved / ".step00000050.partial").mkdir()
    assert latest(saved) == folder_of(saved, 12)
    assert latest(saved / "nothing") is None


def shards(checkpoint: Path) -> list[Path]:
    return sorted(checkpoint.glob("*.distcp"))


def test_bytes_overwritten_inside_are_noticed_and_nothing_is_loaded(saved: Path) -> None:
    file = shards(folder_of(saved, STEPS))[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    parameters, optimizer = build(seed=2)
    state = training_state(parameters, optimizer)
    with pytest.raises(InputError, match=f"{file.name}: is damaged: its checksum differs"):
        load_latest(state, saved)
    for name, expected in build(seed=2)[0].items():
        torch.testing.assert_close(parameters[name], expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", [".metadata", "shard"])
@pytest.mark.parametrize(("change", "said"), [("cut", r"is damaged: \d+ bytes instead of"), ("remove", "is missing")])
def test_cut_and_missing_files_are_named(saved: Path, name: str, change: str, said: str) -> None:
    checkpoint = folder_of(saved, STEPS)
    file = checkpoint / name if name == ".metadata" else shards(checkpoint)[0]
    if change == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    else:
        file.unlink()
    with pytest.raises(InputError, match=said) as caught:
        load(training_state(*build(seed=2)), checkpoint)
    assert file.name in str(caught.value)


def test_another_model_is_refused_with_names_and_shapes(saved: Path) -> None:
    parameters, _ = build(seed=2)
    parameters["q_proj.weight"] = torch.nn.Parameter(torch.zeros(8, 6))
    parameters["v_proj.weight"] = torch.nn.Parameter(torch.zeros(4, 6))
    state = training_state(parameters, torch.optim.AdamW(parameters.values()))
    with pytest.raises(InputError) as caught:
        load_latest(state, saved)
    said = str(caught.value)
    assert "model.q_proj.weight: has shape (4, 6), the plan's model needs (8, 6)" in said
    assert "model.v_proj.weight: is not in the checkpoint" in said


def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        save(1, training_state(*build(seed=1)), tmp_path / "file")


@pytest.mark.slow
def test_two_tensor_ranks_save_what_one_process_loads(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    two_ranks(tmp_path, checkpoints, "save")
    assert len(shards(folder_of(checkpoints, STEPS))) == 2
    parameters, optimizer = build(seed=2)
    assert load_latest(training_state(parameters, optimizer), checkpoints) == STEPS
    step(parameters, optimizer, STEPS)
    for name, expected in trained(STEPS + 1).items():
        torch.testing.assert_close(parameters[name], expected, rtol=0, atol=0)
    two_ranks(tmp_path, checkpoints, "load")


@pytest.mark.slow
def test_one_process_saves_what_two_tensor_ranks_load(tmp_path: Path, saved: Path) -> None:
    assert len(two_ranks(tmp_path, saved, "load")) == 2  # each has compared its share with the saved tensors


@pytest.mark.slow
def test_damage_seen_by_one_rank_stops_both(tmp_path: Path, saved: Path) -> None:
    file = shards(folder_of(saved, STEPS))[0]
    data = bytearray(file.read_bytes())
    data[-200] ^= 255
    file.write_bytes(bytes(data))
    for said in two_ranks(tmp_path, saved, "damaged"):
        assert f"{file.name}: is damaged" in said
