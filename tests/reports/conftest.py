"""A deliberately uneven pipeline, simulated twice: once as predicted, once with jitter as if a dilated run had it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.basics.figures import Constant
from meshwright.basics.quantities import GIB, MIB
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster
from meshwright.files.findings import Diagnosis, Finding, RankSplit
from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction, StageMemory
from meshwright.files.run import RankMemory, RunResult, StepMetrics
from meshwright.files.setup import Setup
from meshwright.files.tuned import TunedStep
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.schedules import actions
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.model.units import expand_all
from meshwright.predictor.pipeline import Simulation, simulate
from meshwright.reports.story import RunView, Story
from meshwright.timeline.columns import Timeline, concatenate

ARCH = Architecture("tiny", "llama", 8, 256, 8, 4, 32, 704, 2048)
UNEVEN = (("embed", "layers.0"), ("layers.1",), ("layers.2",), ("layers.3-7", "head"))
EVEN = (("embed", "layers.0-1"), ("layers.2-3",), ("layers.4-5",), ("layers.6-7", "head"))
LAYER_S, HEAD_S, DILATION, M = 3e-3, 1e-3, 4.0, 8


def plan_of(stages: tuple[tuple[str, ...], ...], limit: int = GIB // 4) -> Plan:
    """A complete plan on four local workers, with its prediction from `simulation_of`."""
    flops, guess = {"fp32": Constant(5e10, "measured")}, Constant(1.0, "guessed")
    device = Device("CPU worker", "cpu", limit, flops, Constant(1e10, "measured"), Constant(1e-5, "guessed"), guess)
    link = Link("loopback", Constant(1e9, "measured"), Constant(2e-5, "measured"))
    cluster = Cluster(device, 4, 4, link, link, limit, local=True, cores=2)
    proposal = Proposal(ARCH, cluster, Training(precision="fp32"), 8, 128, Wanted())
    units = tuple(expand_all(ARCH, stage) for stage in stages)
    layout = Layout(stages=units, placement=(0, 1, 2, 3), pp=4)
    simulation = simulation_of(stages)
    memory = tuple(
        StageMemory(
            rank, (rank,),
            {"weights": 3 * MIB * n, "gradients": 3 * MIB * n, "optimizer": 6 * MIB * n,
             "activations": 9 * MIB * (4 - rank), "reserve": 5 * MIB}, 4 - rank,
        )
        for rank, n in enumerate(_layers(stages))
    )  # fmt: skip
    step, busy = simulation.makespan_s, max(simulation.busy_s)
    mean = sum(simulation.busy_s) / 4
    prediction = Prediction(
        step, (0.9 * step, 1.1 * step), 1024 / step, 256 / step, 0.21, simulation.bubble_fraction, 4e-4,
        {"compute": mean, "imbalance": busy - mean, "bubble": step - busy}, simulation.busy_s, simulation.idle_fraction,
        memory, limit, True, {"matmul rate": "measured", "link latency": "measured", "kernel launch": "guessed"},
    )  # fmt: skip
    return Plan(Setup("uneven", proposal), layout, Batch(8, 1, M, 128), prediction)


def _layers(stages: tuple[tuple[str, ...], ...]) -> list[int]:
    return [sum(name.endswith(".attn") for name in expand_all(ARCH, stage)) for stage in stages]


def simulation_of(stages: tuple[tuple[str, ...], ...], jitter: float = 0.0, seed: int = 0) -> Simulation:
    """The step of these stages; `jitter` scales every stage's time at random."""
    noise = 1 + jitter * np.random.default_rng(seed).standard_normal(4)
    forward = [
        (LAYER_S * n + HEAD_S * ("head" in s)) * f for n, s, f in zip(_layers(stages), stages, noise, strict=True)
    ]
    orders = actions("1f1b", (0, 1, 2, 3), M)
    return simulate(orders, (0, 1, 2, 3), forward, [2 * f for f in forward], hop_s=4e-4, optimizer_s=2e-3)


def measured_timeline(stages: tuple[tuple[str, ...], ...], steps: int = 3) -> Timeline:
    """Steps with jitter, one after the other, in dilated wall nanoseconds."""
    parts, at = [], 10**12
    for step in range(steps):
        one = simulation_of(stages, 0.03, step).timeline(step)
        scaled = replace(
            one, start=at + (one.start * DILATION).astype(np.int64), end=at + (one.end * DILATION).astype(np.int64),
            mode="dilated", time_scale=DILATION,
        )  # fmt: skip
        at = int(scaled.end.max()) + 10**6
        parts.append(scaled)
    return concatenate(parts)


def diagnosis_of(stages: tuple[tuple[str, ...], ...], cause: str = "") -> Diagnosis:
    """The four-way split of the simulated step, and one finding when `cause` is given."""
    simulation = simulation_of(stages, 0.03)
    step = simulation.makespan_s
    ranks = tuple(
        RankSplit(rank, step, busy + 2e-3, 1e-3, 0.0, step - busy - 3e-3, 2e-3)
        for rank, busy in enumerate(simulation.busy_s)
    )
    change = {"layout.stages": tuple(expand_all(ARCH, stage) for stage in EVEN)}
    finding = Finding(
        "imbalance", (3,), (3,), cause, {"compute_over_mean": 2.31, "layers": [1, 1, 1, 5]}, 0.07, 0.55, "high", change,
        (0.48, 0.52, 0.55), "run again and compare the idle shares",
    )  # fmt: skip
    return Diagnosis(
        ("run-1",), "dilated", "3 steps", ranks, {}, {}, (finding,) if cause else (),
        ("kernels: no kernel was recorded on a CPU",), step,
    )  # fmt: skip


def view_of(name: str, stages: tuple[tuple[str, ...], ...], basis: str, cause: str = "") -> RunView:
    """A run of these stages as the page sees it."""
    plan = plan_of(stages)
    assert plan.prediction is not None
    windows = tuple(simulation_of(stages, 0.03, seed).makespan_s for seed in range(3))
    middle = sorted(windows)[1]
    metrics = tuple(
        StepMetrics(step, 7.6 - 0.12 * step + 0.02 * (step % 3), 1.2, 1e-3, 1024, 4 * middle, "dilated", DILATION)
        for step in range(20)
    )
    memory = tuple(
        RankMemory(rank, 3 * MIB * n, 3 * MIB * n, 6 * MIB * n, 400 * MIB) for rank, n in enumerate(_layers(stages))
    )
    return RunView(
        name, plan, {basis: plan.prediction}, simulation_of(stages).timeline(),
        RunResult(name, 20, 5.3, 7.6, 1024 / middle, middle, (min(windows), max(windows)), None, 0.4, 0.08, "dilated",
                  DILATION, windows),
        metrics, memory, diagnosis_of(stages, cause), measured_timeline(stages), {"torch": "2.13.0", "cores": 2},
    )  # fmt: skip


@pytest.fixture(scope="session")
def tuned() -> Story:
    """A loop that moved the layers of an uneven pipeline."""
    cause = "Stage 3 computes 2.31 times the mean of the stages <b>and</b> every other rank waits for it"
    first, second = view_of("run-1", UNEVEN, "before measuring", cause), view_of("run-2", EVEN, "from the run before")
    assert first.result is not None
    assert second.result is not None
    gain = 1 - second.result.step_time_s / first.result.step_time_s
    turn = TunedStep(
        {"layout.stages": [list(units) for units in second.plan.layout.stages]},
        "stages balanced by the measured unit times", "run-1", "run-2", 0.52, gain, (gain - 0.03, gain + 0.02), True,
    )  # fmt: skip
    return Story(
        "Tuning uneven", second.plan, (first, second), (turn,), "1 change made, as many as [tune] max_changes allows"
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "report.html"
