"""The peak of tensors alive at once: each storage counts once, from its birth to its death."""

from pathlib import Path

import pytest

from meshwright.basics.errors import RunFailed
from meshwright.files.plan_toml import read_plan
from meshwright.trainer.launch import train
from meshwright.trainer.options import Phase, TrainOptions

torch = pytest.importorskip("torch", reason="training needs meshwright[train]")

from meshwright.trainer.memory import PeakTensors, held_tensors  # noqa: E402

JOB = """
format = 1
[model]
layers = 2
hidden = 64
heads = 4
ffn_hidden = 128
vocab = 300
family = "llama"
[cluster]
gpu = "local"
gpus = {pp}
[batch]
global = 4
seq_len = 64
micro_batch = 2
[training]
precision = "fp32"
[layout]
dp = 1
tp = 1
pp = {pp}
schedule = "1f1b"
stages = {stages}
"""


def test_what_is_freed_no_longer_counts() -> None:
    with PeakTensors(()) as tracked:
        a = torch.zeros(1000)
        b = torch.ones(500)
        del a
        c = torch.ones(600)
    assert tracked.peak == 4 * 1500
    assert tracked.now == 4 * (len(b) + len(c))


def test_views_and_work_in_place_cost_nothing() -> None:
    with PeakTensors(()) as tracked:
        a = torch.zeros(100, 10)
        a.view(-1).t()
        a.add_(1.0)[3:7].mul_(2.0)
    assert tracked.peak == 4 * 1000


def test_a_storage_that_is_resized_counts_what_it_is() -> None:
    """FSDP frees gathered parameters by resizing their storage to nothing."""
    with PeakTensors(()) as tracked:
        a = torch.zeros(1000)
        a.untyped_storage().resize_(0)
        assert tracked.now == 0
        b = torch.zeros(600)
        a.untyped_storage().resize_(4 * 1000)
        assert tracked.now == 4 * 1600
        del a
    assert (tracked.now, tracked.peak) == (b.nbytes, 4 * 1600)
    assert torch.UntypedStorage.resize_.__name__ == "resize_"  # as it was before


def test_what_is_held_counts_from_the_start_and_once() -> None:
    a = torch.zeros(256)
    with PeakTensors((a, a.view(16, 16))) as tracked:
        b = a + 1
    assert tracked.peak == 4 * 512
    assert len(b) == 256


def test_a_training_step_peaks_at_activations_or_at_states() -> None:
    # Two matrices n x n on m rows. Forward keeps the hidden rows; backward makes both gradients.
    n, m = 64, 1024
    model = torch.nn.Sequential(torch.nn.Linear(n, n, bias=False), torch.nn.ReLU(), torch.nn.Linear(n, n, bias=False))
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(m, n)
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    held = held_tensors(dict(model.named_parameters()), optimizer)
    states = sum(tensor.nbytes for tensor in held)
    assert states == 2 * (4 * n * n * 4 + 4)  # weight, gradient and two moments, and a step count, of each matrix
    with PeakTensors(held) as tracked:
        model(x).sum().backward()
    rows = 4 * m * n
    # The hidden rows before and after ReLU are kept; backward adds a gradient or two of them.
    assert states + 2 * rows <= tracked.peak <= states + 5 * rows


def test_the_tensor_that_crosses_the_limit_is_refused() -> None:
    with PeakTensors((), limit=4 * 1500):
        a = torch.zeros(1000)
        b = torch.zeros(500)
        with pytest.raises(MemoryError, match=r"out of memory: 4 B more make 5\.86 KiB"):
            torch.zeros(1)
    assert len(a) + len(b) == 1500


@pytest.mark.slow
@pytest.mark.parametrize("pp", [1, 2])
def test_a_run_beyond_its_stated_memory_fails_where_it_happens(tmp_path: Path, pp: int) -> None:
    job = tmp_path / "small.toml"
    job.write_text(JOB.format(pp=pp, stages='[["embed", "layers.0"], ["layers.1", "head"]]' if pp == 2 else "[]"))
    if pp == 1:
        job.write_text(job.read_text().replace("stages = []\n", ""))
    fits = read_plan(job)
    result = train(fits, TrainOptions(run=tmp_path / "fits", phases=(Phase("measured", 4),)), lambda line: None)
    assert result.memory_gib is not None
    tight = read_plan(job, [f"cluster.memory_gib={result.memory_gib * 0.8}"])
    with pytest.raises(RunFailed, match=r"rank \d .*out of memory: .* cluster\.memory_gib allows a rank"):
        train(tight, TrainOptions(run=tmp_path / "tight", phases=(Phase("measured", 4),)), lambda line: None)
    roomy = read_plan(job, [f"cluster.memory_gib={result.memory_gib * 1.01}"])
    again = train(roomy, TrainOptions(run=tmp_path / "roomy", phases=(Phase("measured", 4),)), lambda line: None)
    assert again.loss == result.loss
