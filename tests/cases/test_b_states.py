"""Cases of kind B about training states: the planner's part."""

from pathlib import Path

import pytest

import meshwright
from meshwright.basics.quantities import GIB
from meshwright.model.parameters import total_parameters
from meshwright.predictor.step import predict

from .jobs import job
from .plans_of import A100, plan, states, worst

SEVEN = "layers = 32\nhidden = 4096\nheads = 32\nffn_hidden = 11648\nvocab = 32000"  # 7.00 B, within 0.1 %
BATCH = "global = 16\nseq_len = 512\nmicro_batch = 1"


@pytest.mark.parametrize(
    ("zero", "gradient", "runner", "expected"),
    [
        (0, "bf16", "any", 104.3), (0, "fp32", "any", 117.3), (1, "bf16", "any", 35.9), (1, "fp32", "any", 48.9),
        (2, "bf16", "any", 24.4), (2, "fp32", "deepspeed", 27.7), (3, "bf16", "any", 13.0),
        (3, "bf16", "deepspeed", 13.0),
    ],
)  # fmt: skip
def test_b2_bytes_a_parameter(tmp_path: Path, zero: int, gradient: str, runner: str, expected: float) -> None:
    training = f"[training]\nprecision = 'bf16'\ngradient_dtype = '{gradient}'"
    found = plan(tmp_path, SEVEN, 8, BATCH, f"dp = 8\ntp = 1\npp = 1\nzero = {zero}", training, runner)
    exact = states(worst(found)) / GIB * 7.0e9 / total_parameters(found.setup.proposal.arch)
    assert exact == pytest.approx(expected, rel=0.01)


def test_b2_the_recipe_stands_beside_the_figure(tmp_path: Path) -> None:
    file = job(tmp_path, SEVEN, A100.format(gpus=8), BATCH, "[layout]\ndp = 8\ntp = 1\npp = 1\nzero = 1")
    recipe = str(meshwright.memory(file)["recipe"])
    assert "2 weight + 4 gradient + 4 master / 8 + 8 moments / 8" in recipe
    halved = meshwright.memory(file, overrides=["training.gradient_dtype=bf16"])
    assert "2 weight + 2 gradient + 4 master / 8 + 8 moments / 8" in str(halved["recipe"])


def test_b2_the_model_called_3b_is_counted_exactly(tmp_path: Path) -> None:
    """2851 M parameters: the states are those of 2.851 B, not of 3 B."""
    model = "layers = 32\nhidden = 2560\nheads = 32\nffn_hidden = 8800\nvocab = 50000\ngated = true"
    found = plan(tmp_path, model, 8, BATCH, "dp = 8\ntp = 1\npp = 1\nzero = 0", "[training]\ngradient_dtype = 'bf16'")
    assert states(worst(found)) == 16 * total_parameters(found.setup.proposal.arch)


GPT_176B = """family = "gpt2"
layers = 70
hidden = 14336
heads = 112
ffn_hidden = 57344
gated = false
vocab = 250880
tied = true"""
PIPELINE = "dp = 1\ntp = 4\npp = 12\nschedule = '1f1b'\nrecompute = 'full'\nzero = 0"


def test_b4_each_end_takes_a_layer_less(tmp_path: Path) -> None:
    """70 layers and two embeddings of 1.46 layers each on 12 stages: 5, 6 x 10, 5; 3.98 B and 3.70 B a GPU."""
    file = job(tmp_path, GPT_176B, A100.format(gpus=48), "global = 2048\nseq_len = 2048", f"[layout]\n{PIPELINE}",
               "megatron")  # fmt: skip
    best = meshwright.plan(file, top=1)["plans"][0]
    assert [layers_in(stage) for stage in best["stages"]] == [5, *[6] * 10, 5]
    sizes = [entry["parts_gib"]["weights"] * GIB / 2 for entry in memory_of_stages(file, best["stages"])]
    assert [sizes[0], sizes[-1]] == pytest.approx([3.98e9, 3.98e9], rel=0.002)
    assert sizes[1:-1] == pytest.approx([3.70e9] * 10, rel=0.002)
    assert max(sizes) / min(sizes) < 1.08


def layers_in(stage: list[str]) -> int:
    """Layers of a stage as plans spell it."""
    count = 0
    for part in stage:
        if part.startswith("layers."):
            first, _, last = part.removeprefix("layers.").partition("-")
            count += int(last or first) - int(first) + 1
    return count


def memory_of_stages(file: Path, stages: list[list[str]]) -> list[dict[str, dict[str, float]]]:
    """The bytes of each pipeline rank for these stages."""
    found = meshwright.memory(file, overrides=[f"layout.stages={stages!r}", "batch.micro_batch=1"])
    entries: list[dict[str, dict[str, float]]] = found["stages"]
    return entries


def test_b4_an_end_with_six_layers_is_the_heaviest(tmp_path: Path) -> None:
    stages = [["embed", "layers.0-5"], *([f"layers.{n}-{n + 5}"] for n in range(6, 66, 6)), ["layers.66-69", "head"]]
    found = predict(
        plan(tmp_path, GPT_176B, 48, "global = 2048\nseq_len = 2048\nmicro_batch = 1", f"{PIPELINE}\nstages = {stages}")
    )
    assert found.worst_memory.pipeline_rank == 0
    assert found.worst_memory.stages == (0,)
    assert found.worst_memory.parts["weights"] / 2 == pytest.approx((3.597e9 + 6 * 2.466e9) / 4, rel=0.002)


def test_b4_what_a_reported_end_holds_more(tmp_path: Path) -> None:
    """Middle 4660 MiB, first 6824: 2164 MiB of states more, at 16 B a parameter 142 M parameters of embedding."""
    rows = 2164 * 2**20 / 16 / 2048
    model = (
        f'family = "gpt2"\nlayers = 16\nhidden = 2048\nheads = 16\ngated = false\nvocab = {round(rows)}\ntied = true'
    )
    stages = [["embed", "layers.0-3"], ["layers.4-7"], ["layers.8-11"], ["layers.12-15", "head"]]
    layout = f"dp = 1\ntp = 1\npp = 4\nschedule = '1f1b'\nzero = 0\nstages = {stages}"
    training = "[training]\nprecision = 'fp16'\ngradient_dtype = 'fp16'"
    found = predict(plan(tmp_path, model, 4, "global = 8\nseq_len = 512\nmicro_batch = 1", layout, training))
    first, middle, _, last = (states(rank) / 2**20 for rank in found.memory)
    assert first - middle == pytest.approx(2164, rel=0.05)  # position table included
    assert last - middle == pytest.approx(2164, rel=0.01)
    assert round(rows) * 2048 == pytest.approx(142e6, rel=0.005)
