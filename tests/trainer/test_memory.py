"""The peak of tensors alive at once: each storage counts once, from its birth to its death."""

import pytest

torch = pytest.importorskip("torch", reason="training needs meshwright[train]")

from meshwright.trainer.memory import PeakTensors, held_tensors  # noqa: E402


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
