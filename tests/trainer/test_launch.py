"""Starting ranks, following them, and telling what went wrong; with a worker that needs no torch."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.basics.errors import InputError, RunFailed
from meshwright.basics.figures import Constant
from meshwright.cluster.device import Device
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import write_plan
from meshwright.files.run import RunFolder, StepMetrics
from meshwright.files.run_io import append_metrics, new_run, read_environment, read_metrics, read_result
from meshwright.files.strict_json import dump
from meshwright.trainer.checkpoint_files import Manifest, folder_of
from meshwright.trainer.launch import check_same_run, finish, resumed, train, with_dilation
from meshwright.trainer.options import Phase, TrainOptions, read_options
from meshwright.trainer.outcome import measured_windows, result_of
from meshwright.trainer.watch import Watch

from .plans import plan, variant

WORKER = str(Path(__file__).with_name("fake_worker.py"))
pytest.importorskip("torch")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    folder = tmp_path / "tokens"
    folder.mkdir()
    (np.arange(4000) % 256).astype(np.uint16).tofile(folder / "tokens.bin")
    header = {"dtype": "uint16", "count": 4000, "vocab": 256, "documents": 1, "text_bytes": 9000, "corpus": "numbers"}
    dump(header, folder / "header.json")
    return folder


@pytest.fixture
def options(tmp_path: Path, tokens: Path) -> TrainOptions:
    return TrainOptions(tmp_path / "runs" / "demo", (Phase("measured", 4), Phase("measured", 3)), tokens)


def quiet(_: str) -> None:
    pass


def on_gpus(plan: Plan) -> Plan:
    """The same plan on devices with a data-sheet peak of 19.5 TFLOP/s."""
    proposal = plan.setup.proposal
    device = Device(
        "A100-40GB-SXM", "gpu", 40 * 2**30, {"fp32": Constant(19.5e12, "data sheet")}, *[Constant(1, "guessed")] * 3
    )
    cluster = replace(proposal.cluster, device=device)
    return replace(plan, setup=replace(plan.setup, proposal=replace(proposal, cluster=cluster)))


@pytest.mark.slow
def test_a_run_reports_its_steps_and_leaves_its_files(options: TrainOptions) -> None:
    said: list[str] = []
    result = train(plan(dp=2), options, said.append, worker=WORKER)
    folder = RunFolder(options.run)
    assert said[0] == f"starting 2 ranks in {options.run}"
    assert next(line for line in said if line.startswith("step ")) == "step 1 of 7: loss 6.9000, 100.0 ms"
    assert len([line for line in said if line.startswith("step ")]) == 7
    assert result == read_result(folder.result)
    assert (result.steps, result.first_loss, result.loss, result.mode) == (7, 6.9, 6.3, "measured")
    # Step n takes n / 10 s: windows are steps 1-4 and 5-7 without their first.
    np.testing.assert_allclose(result.windows, (0.3, 0.65))
    np.testing.assert_allclose(result.step_time_s, 0.475)
    np.testing.assert_allclose(result.step_time_spread, (0.3, 0.65))
    np.testing.assert_allclose(result.tokens_per_s, 1024 / 0.475)
    assert result.memory_gib == 0.5
    assert result.mfu is None
    assert read_options(options.run) == replace(options, run=options.run)
    assert read_environment(folder.environment)["variables"]["OMP_NUM_THREADS"] == "1"
    assert folder.plan.exists()
    assert sorted(file.name for file in (options.run / "logs").iterdir()) == [
        "agent.log", "rank00000.err", "rank00000.out", "rank00001.err", "rank00001.out",
    ]  # fmt: skip
    again = train(plan(), options, quiet, worker=WORKER)
    assert again.run == f"{options.run}-2"


FAULTS = [
    ("raise 1", r"^rank 1 of 3 failed after step 1: ValueError: the weights of rank 1 are gone; .*rank00001\.err$"),
    ("kill 2", r"^rank 2 of 3 failed after step 1: killed by signal 9 \(SIGKILL\)"),
    ("exit 0", r"^rank 0 of 3 failed after step 1: exit code 7, last line 'leaving with a note'"),
    ("leave 1", r"^rank 1 of 3 ended early with exit code 0; then rank \d failed after step 1: .*Connection closed"),
    ("hang 2", r"^rank 2 of 3 did not answer; then rank \d failed after step 1: .*Timed out"),
    ("stop 1", r"^rank 1 of 3 did not answer; then rank \d failed after step 1: .*Timed out"),
    ("raise 2 1", r"^rank 2 of 3 failed before its first step: ValueError"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_a_failure_names_rank_step_and_cause(
    options: TrainOptions, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    monkeypatch.setenv("FAKE_FAULT", fault)
    with pytest.raises(RunFailed, match=said) as caught:
        train(plan(dp=3), options, quiet, worker=WORKER)
    assert "\n" not in str(caught.value)
    wait_until(lambda: not alive(options.run))


@pytest.mark.slow
def test_what_the_worker_refuses_stays_an_input_error(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "input 0 1")
    with pytest.raises(InputError, match=r"model\.config: unknown family 'bert' \(llama, qwen2\)"):
        train(plan(), options, quiet, worker=WORKER)


@pytest.mark.slow
def test_ranks_that_end_too_early_are_a_failure(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "leave 0 3")
    with pytest.raises(RunFailed, match="ended after 2 of 7 steps"):
        train(plan(), options, quiet, worker=WORKER)


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from meshwright.trainer.checkpoint_files import Manifest, folder_of
from meshwright.trainer.launch import resumed, train, with_dilation
from meshwright.trainer.options import Phase, TrainOptions
from plans import plan
options = TrainOptions(Path(sys.argv[1]), (Phase("measured", 9),), Path(sys.argv[2]))
train(plan(dp=2), options, lambda line: print(line, flush=True), worker=sys.argv[4])
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_launcher(options: TrainOptions, sent: signal.Signals) -> None:
    root = str(Path(__file__).parent)
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(options.run), str(options.tokens), root, WORKER],
        env={**os.environ, "FAKE_FAULT": "sleep 0"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: len(alive(options.run)) == 2 and (options.run / "metrics.jsonl").exists())
    program.send_signal(sent)
    _, errors = program.communicate(timeout=30)
    assert program.returncode == -sent  # Python ends itself by SIGINT when KeyboardInterrupt reaches the top
    if sent == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
        assert not alive(options.run)
    wait_until(lambda: not alive(options.run))


def alive(run: Path) -> list[int]:
    """The ranks of a run that still exist, by the numbers they left."""
    found = []
    for file in (run / "pids").glob("[0-9]*"):
        text = file.read_text()
        if text and Path(f"/proc/{text}/stat").exists() and " Z " not in Path(f"/proc/{text}/stat").read_text():
            found.append(int(text))
    return found


def wait_until(holds: Callable[[], bool], timeout_s: float = 40) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_launching_needs_no_torch_in_this_process() -> None:
    code = "import meshwright.trainer.launch, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("found", "said"),
    [(None, r"PyTorch, which is not installed \(pip install 'meshwright\[train\]'\)"),
     ("2.9.1", r"torch = 2\.9\.1: the trainer supports torch 2\.13\.x")],
)  # fmt: skip
def test_torch_missing_or_of_another_version(
    options: TrainOptions, monkeypatch: pytest.MonkeyPatch, found: str | None, said: str
) -> None:
    monkeypatch.setattr("meshwright.trainer.preflight.package_version", lambda name: found)
    with pytest.raises(InputError, match=said):
        train(plan(), options, quiet, worker=WORKER)
    assert not options.run.exists()


def test_too_little_memory_for_the_ranks(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.trainer.preflight.available_memory", lambda: 2**30)
    with pytest.raises(InputError, match=r"8 ranks need about 3\.20 GiB .* 1\.00 GiB is free \(at most 2 ranks now\)"):
        train(plan(dp=8), options, quiet, worker=WORKER)


@pytest.mark.slow
def test_fewer_cores_than_ranks_is_a_note(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.trainer.preflight.usable_cores", lambda: 1)
    said: list[str] = []
    train(plan(dp=2), replace(options, phases=(Phase("measured", 1),)), said.append, worker=WORKER)
    assert said[0].startswith("note: 2 ranks share 1 cores")


def test_a_plan_for_gpus_that_are_not_here(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.trainer.preflight.visible_gpus", lambda: ())
    monkeypatch.setattr("meshwright.trainer.preflight.gpu_names", lambda: ("A100, 40960 MiB, 580.1",))
    with pytest.raises(InputError, match="needs 2 x A100-40GB-SXM, this machine shows 1 GPUs"):
        train(on_gpus(plan(dp=2)), options, quiet, worker=WORKER)


def test_a_full_disk_is_seen_before_the_start(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")(10**9, 10**9 - 2**20, 2**20)
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(InputError, match="the disk is full: 1 MiB left, at least 100 MiB are needed"):
        train(plan(), options, quiet, worker=WORKER)


def test_a_run_folder_that_cannot_be_written(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(options.run / "plan.toml"))

    monkeypatch.setattr("meshwright.trainer.launch.write_plan", refuse)
    with pytest.raises(InputError, match=r"plan\.toml: cannot be written \(Permission denied\)"):
        train(plan(), options, quiet, worker=WORKER)


def test_too_little_text_leaves_no_run_folder(options: TrainOptions) -> None:
    with pytest.raises(InputError, match="holds 4000 tokens, 3 windows of 1024; a step of 8 samples needs 8193"):
        train(plan(seq_len=1024, global_batch=8), options, quiet, worker=WORKER)
    assert not options.run.exists()


def test_nothing_to_resume(options: TrainOptions) -> None:
    with pytest.raises(InputError, match="holds no complete checkpoint to resume from"):
        train(plan(), replace(options, resume=True), quiet, worker=WORKER)
    assert not options.run.exists()


def interrupted(run: Path, done: int, steps_written: int) -> RunFolder:
    """A run with a complete checkpoint of step `done` and metrics that go further and end in half a line."""
    folder = RunFolder(run)
    checkpoint = folder_of(folder.checkpoints, done)
    checkpoint.mkdir(parents=True)
    dump(Manifest(done, {}), checkpoint / "manifest.json")
    for step in steps(*[("measured", 0, 5.0, False)] * steps_written):
        append_metrics(folder.metrics, step)
    with folder.metrics.open("a") as stream:
        stream.write('{"step": ')
    (run / "logs").mkdir()
    (run / "logs" / "rank00000.err").write_text("why it ended")
    return folder


def test_a_resumed_run_forgets_what_its_checkpoint_does_not_hold(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "run", 2, 4)
    assert resumed(tmp_path / "run", 5) == (folder, 2)
    assert [step.step for step in read_metrics(folder.metrics)] == [1, 2]
    assert (tmp_path / "run" / "logs-1" / "rank00000.err").read_text() == "why it ended"
    with pytest.raises(InputError, match=r"training\.steps = 2: all steps are done: .* of step 2 \(more than 2\)"):
        resumed(tmp_path / "run", 2)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (plan(arch=variant(hidden=128)), "model.hidden = 128: is another model than the run's (64 in "),
        (plan(arch=variant(tied=True)), "model.tied = True"),
        (plan(training={"seed": 5}), "training.seed = 5: would repeat or skip text"),
        (plan(training={"optimizer": "sgd"}), "training.optimizer = sgd: is another optimizer than the run's (adamw"),
        (
            plan(global_batch=32),
            "batch.global = 32: would repeat or skip text: the run was trained with another (16",
        ),
    ],
    ids=["wider", "tied", "seed", "optimizer", "batch"],
)
def test_resuming_another_model_leaves_the_run_as_it_is(options: TrainOptions, other: Plan, said: str) -> None:
    folder = interrupted(options.run, 2, 4)
    write_plan(plan(), folder.plan)
    before = {path: path.read_bytes() for path in sorted(options.run.rglob("*")) if path.is_file()}
    with pytest.raises(InputError) as caught:
        train(other, replace(options, resume=True), quiet, worker=WORKER)
    assert said in str(caught.value)
    assert {path: path.read_bytes() for path in sorted(options.run.rglob("*")) if path.is_file()} == before
    check_same_run(plan(dp=2, tp=2, training={"lr": 1.0}), options.run)


def test_a_loss_that_diverged_is_said(options: TrainOptions) -> None:
    folder = new_run(options.run.parent, options.run.name)
    for number in range(1, 8):
        loss = 3.0 if number < 5 else float("nan")
        append_metrics(folder.metrics, StepMetrics(number, loss, 1.0, 1e-3, 100, 0.1, "measured"))
    said: list[str] = []
    result = finish(plan(), folder, replace(options, run=folder.root), said.append)
    assert said == ["note: the loss is not a number since step 5: the training has diverged"]
    assert result.steps == 7


@pytest.mark.slow
def test_a_resumed_run_is_measured_by_its_new_steps(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SKIP", "4")
    interrupted(options.run, 4, 6)
    said: list[str] = []
    result = train(plan(), replace(options, resume=True), said.append, worker=WORKER)
    assert result.run == str(options.run)
    assert said[0] == f"resuming {options.run} after step 4"
    assert (result.steps, result.loss) == (7, 6.3)
    np.testing.assert_allclose(result.windows, (0.65,))  # steps 6 and 7; those of 5 s belong to the first attempt


def test_a_dilated_phase_gets_a_factor_that_suits_the_machine(
    options: TrainOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshwright.trainer.launch.usable_cores", lambda: 2)
    dilated = replace(options, phases=(Phase("measured", 1), Phase("dilated", 1)))
    assert with_dilation(dilated, 8).dilation == 8.0  # twice the ranks a core
    assert with_dilation(replace(dilated, dilation=3.0), 8).dilation == 3.0
    assert with_dilation(options, 8).dilation is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"phases": ()}, "phases: at least one phase is needed"),
        ({"phases": (Phase("emulated", 0),)}, "unit_costs: is needed by an emulated phase"),
        ({"phases": (Phase("predicted", 1),)}, "cannot be run"),
        ({"dilation": 0.5}, "dilation = 0.5: must be at least 1"),
        ({"timeout_s": 0}, "timeout_s = 0: must be more than 0"),
    ],
)
def test_contradicting_options(options: TrainOptions, change: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        train(plan(), replace(options, **change), quiet, worker=WORKER)  # type: ignore[arg-type]
    assert said in str(caught.value)


def steps(*rows: tuple[str, int, float, bool]) -> list[StepMetrics]:
    return [
        StepMetrics(number, 1.0, 1.0, 1.0, 100, wall, mode, 4.0 if mode == "dilated" else 1.0, window, profiled)  # type: ignore[arg-type]
        for number, (mode, window, wall, profiled) in enumerate(rows, 1)
    ]


def test_which_steps_count() -> None:
    def counted(*rows: tuple[str, int, float, bool]) -> list[list[int]]:
        return [[step.step for step in window] for window in measured_windows(steps(*rows))]

    warm, dilated = (
        [("measured", 0, 9.0, False)] * 3,
        [("dilated", 1, 8.0, False)] * 3 + [("dilated", 2, 4.0, False)] * 2,
    )
    traced = [("measured", 3, 400.0, True)] * 3
    assert counted(*warm) == [[2, 3]]
    assert counted(*warm, *dilated) == [[5, 6], [7, 8]]
    assert counted(*warm, *dilated, *traced) == [[5, 6], [7, 8]]
    assert counted(*traced) == [[2, 3]]


def test_device_seconds_and_mfu(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in steps(("dilated", 0, 4.0, False), ("dilated", 0, 8.0, False)):
        append_metrics(folder.metrics, step)
    result = result_of(on_gpus(plan()), folder)
    assert result.step_time_s == 1.5
    assert result.dilation == 4.0
    assert result.memory_gib is None
    # Matrices of a layer: q and o 64x64, k and v 64x32, three of 64x176; the output 64x256. Attention: 4 layers of
    # 4 · (32/2) keys · 64. Forward and backward of 16 x 32 tokens, three times the forward.
    matrices = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176) + 64 * 256
    flops = 3 * 512 * (2 * matrices + 4 * 4 * 16 * 64)
    assert result.mfu == pytest.approx(flops / 1.5 / 19.5e12)


def test_a_run_without_steps_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="without finishing a step"):
        result_of(plan(), RunFolder(tmp_path))


def test_silence_is_broken_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    said: list[tuple[float, str]] = []
    file = tmp_path / "metrics.jsonl"
    watch = Watch(file, 8, 3, 1, lambda line: said.append((now[0], line)), _spoke=100.0, _since=100.0)
    for tick in range(300):
        now[0] = 100.0 + tick * 0.1
        if tick in (150, 250):
            append_metrics(file, replace(steps(("measured", 0, 1.0, False))[0], step=1 if tick == 150 else 3))
        watch.look()
    assert max(np.diff([100.0, *(when for when, _ in said), now[0]])) < 5
    lines = [line for _, line in said]
    assert lines[0] == "starting 8 ranks… 4.60 s"
    assert "step 1 of 3: loss 1.0000, 1.00 s" in lines
    assert lines[lines.index("step 1 of 3: loss 1.0000, 1.00 s") + 1] == "step 2 of 3 has been running for 4.60 s"
    assert lines[-1].startswith("finishing…")


def test_half_a_line_is_waited_for_and_old_steps_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    (first,) = steps(("measured", 0, 1.0, False))
    append_metrics(file, first)
    said: list[str] = []
    watch = Watch(file, 1, 9, 1, said.append)
    watch.skip_existing()
    append_metrics(tmp_path / "other", replace(first, step=2))
    line = (tmp_path / "other").read_bytes()
    for part in (line[:20], line[20:]):
        with file.open("ab") as stream:
            stream.write(part)
        watch.look()
    assert said == ["step 2 of 9: loss 1.0000, 1.00 s"]
