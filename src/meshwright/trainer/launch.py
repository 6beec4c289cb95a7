"""Train a plan: check, prepare, start the ranks, follow them, and say what came out."""

import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from meshwright.basics.errors import Complaint, InputError, RunFailed, bad_input
from meshwright.cluster.machine import usable_cores
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import read_plan, write_plan
from meshwright.files.run import RunFolder, RunResult
from meshwright.files.run_io import new_run, read_metrics, write_environment, write_metrics, write_result
from meshwright.trainer.checkpoint_files import latest, read_manifest
from meshwright.trainer.clock import default_dilation
from meshwright.trainer.data import open_tokens
from meshwright.trainer.data_prepare import prepare
from meshwright.trainer.data_resume import changed_data, keep_header
from meshwright.trainer.data_sampler import check_readable
from meshwright.trainer.environment import environment
from meshwright.trainer.failure import explain
from meshwright.trainer.loss_scale import verdict
from meshwright.trainer.lost_place import lost_place
from meshwright.trainer.membership import membership
from meshwright.trainer.options import TrainOptions, check_options, write_options
from meshwright.trainer.outcome import result_of
from meshwright.trainer.preflight import check_disk, check_machine, check_packages
from meshwright.trainer.rank import LOGS
from meshwright.trainer.ranks import GRACE_S, failed_since, kill_ranks, rank_environment, running
from meshwright.trainer.unsupported import unsupported
from meshwright.trainer.watch import Watch
from meshwright.trainer.weights_start import check_start

WORKER = "meshwright.trainer.worker"
_LOOK_S = 0.1


def train(plan: Plan, options: TrainOptions, progress: Callable[[str], None], *, worker: str = WORKER) -> RunResult:
    """Train `plan` and report; blocks until the run is over, and tells `progress` what goes on every few seconds.

    `options.run` names the run folder; when it exists a free name beside it is taken (-2, -3, ...), unless
    `options.resume` continues in it. `worker` is the module (or script) that each rank runs with the folder as its
    argument. Under torchrun or SLURM this process is itself a rank and joins.

    Raises InputError before anything is started, RunFailed when the run failed; on KeyboardInterrupt the ranks are
    ended first.
    """
    options = with_dilation(options, plan.layout.world)
    check_options(options)
    check_packages()
    member = membership(os.environ, plan.layout.world)
    if member is not None:
        from meshwright.trainer.join import join

        return join(plan, options, progress, member, worker)
    check_machine(plan, options, progress)
    folder, ready, since = prepare_run(plan, options, progress)
    watch = Watch(folder.metrics, plan.layout.world, ready.steps, ready.log_every, progress)
    watch.skip_existing()
    run_ranks(plan.layout.world, folder, watch, worker)
    return finish(plan, folder, ready, progress, since)


def with_dilation(options: TrainOptions, world: int) -> TrainOptions:
    """The options with a K that suits this machine, when a dilated phase needs one and none is given."""
    if options.dilation is not None or all(phase.mode != "dilated" for phase in options.phases):
        return options
    return replace(options, dilation=default_dilation(world, usable_cores()))


def prepare_run(
    plan: Plan, options: TrainOptions, progress: Callable[[str], None]
) -> tuple[RunFolder, TrainOptions, int]:
    """Prepare the data, then make the run folder with all that the ranks read. Returns the folder, the completed
    options and the steps that are already done (those of the checkpoint when resuming).

    Raises InputError for a plan that the trainer does not run, for text that does not fill a step, for a folder that
    cannot be written, and for nothing to resume.
    """
    refused = unsupported(plan)
    if refused:
        raise InputError(refused)
    arch = plan.setup.proposal.arch
    check_start(arch, options.weights, options.export, progress)
    check_disk(options.run)
    tokens = options.tokens or prepare(plan.setup.data, arch.vocab, progress, arch.config_path)
    check_readable(open_tokens(tokens), plan)
    if options.resume:
        check_same_run(plan, options.run, tokens)
        folder, since = resumed(options.run, options.steps)
        progress(f"resuming {folder.root} after step {since}")
    else:
        folder, since = new_run(options.run.absolute().parent, options.run.name), 0
    weights = None if options.weights is None else options.weights.absolute()
    ready = replace(options, run=folder.root, tokens=tokens.absolute(), weights=weights)
    try:
        write_plan(plan, folder.plan)
        write_options(ready)
        keep_header(tokens, folder.root)
        write_environment(environment(rank_environment(os.environ), Path.cwd()), folder.environment)
        if (tokens / "tokenizer.json").exists():
            shutil.copy(tokens / "tokenizer.json", folder.root / "tokenizer.json")
    except OSError as error:
        raise bad_input(f"cannot be written ({error.strerror})", file=str(error.filename or folder.root)) from error
    return folder, ready, since


def run_ranks(world: int, folder: RunFolder, watch: Watch, worker: str) -> None:
    """Start the ranks and wait for their end. Raises RunFailed (or what the worker itself raised)."""
    watch.progress(f"starting {world} rank{'s' if world > 1 else ''} in {folder.root}")
    with running(worker, folder.root, world, rank_environment(os.environ)) as agent:
        while agent.poll() is None:
            watch.look()
            if failed_since(folder.root) > GRACE_S:
                kill_ranks(agent)
            time.sleep(_LOOK_S)
        watch.look()
    if agent.returncode:
        last = watch.last.step if watch.last else None
        raise lost_place(folder.root, last) or explain(folder.root, agent.returncode, last)


def finish(
    plan: Plan, folder: RunFolder, options: TrainOptions, progress: Callable[[str], None], since: int = 0
) -> RunResult:
    """The result of a run whose ranks all ended well, also written to `result.json`; says what skipped steps
    mean, and when the loss diverged."""
    result = result_of(plan, folder, since)
    if result.steps < options.steps:
        raise RunFailed(f"the ranks ended after {result.steps} of {options.steps} steps (logs in {folder.root / LOGS})")
    try:
        write_result(result, folder.result)
    except OSError as error:
        raise RunFailed(f"{folder.result}: cannot be written ({error.strerror})") from error
    skips = [(step.step, step.loss_scale or 0.0) for step in read_metrics(folder.metrics) if step.skipped]
    if skips:
        progress(f"note: skipped steps are {verdict(skips, result.steps)}")
    if not math.isfinite(result.loss):
        diverged = next(step.step for step in read_metrics(folder.metrics) if not math.isfinite(step.loss))
        progress(f"note: the loss is not a number since step {diverged}: the training has diverged")
    return result


def check_same_run(plan: Plan, run: Path, tokens: Path | None = None) -> None:
    """Raise InputError when the run to be resumed trained another model, with another optimizer, or on other batches
    (of other tokens than those in the folder `tokens`).

    Asked before anything in its folder is changed: the layout and the rest of the recipe may differ.
    """
    written = RunFolder(run).plan
    if not written.exists():
        return
    former = read_plan(written)
    then, now = former.setup.proposal, plan.setup.proposal
    unlike = [
        Complaint(f"model.{part.name}", str(getattr(now.arch, part.name)), "is another model than the run's",
                  f"{getattr(then.arch, part.name)} in {written}")
        for part in fields(now.arch)
        if part.name not in ("name", "family", "config_path")
        and getattr(now.arch, part.name) != getattr(then.arch, part.name)
    ]  # fmt: skip
    if now.training.optimizer != then.training.optimizer:
        unlike.append(Complaint("training.optimizer", now.training.optimizer, "is another optimizer than the run's",
                                f"{then.training.optimizer} in {written}"))  # fmt: skip
    unlike += changed_data(former, plan, run, tokens)
    if unlike:
        raise InputError(tuple(unlike))


def resumed(run: Path, steps: int) -> tuple[RunFolder, int]:
    """The folder of a run to go on with, and the steps that its newest checkpoint holds.

    What the interrupted attempt did after that checkpoint is done again, so its lines leave the metrics; its logs are
    kept under another name. Raises InputError when there is no complete checkpoint, or nothing left to do.
    """
    folder = RunFolder(run.absolute())
    newest = latest(folder.checkpoints)
    if newest is None:
        raise bad_input("holds no complete checkpoint to resume from", file=str(folder.checkpoints))
    done = read_manifest(newest).step
    if done >= steps:
        raise bad_input(f"all steps are done: the newest checkpoint is of step {done}", field="training.steps",
                        value=steps, legal=f"more than {done}")  # fmt: skip
    kept = [step for step in read_metrics(folder.metrics) if step.step <= done] if folder.metrics.exists() else []
    write_metrics(kept, folder.metrics)
    logs = folder.root / LOGS
    if logs.exists():
        attempt = 1 + len(list(folder.root.glob(f"{LOGS}-*")))
        logs.rename(folder.root / f"{LOGS}-{attempt}")
    return folder, done
