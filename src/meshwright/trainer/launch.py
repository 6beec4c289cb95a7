"""Train a plan: check, prepare, start the ranks, follow them, and say what came out."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from meshwright.basics.errors import RunFailed, bad_input
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import write_plan
from meshwright.files.run import RunFolder, RunResult
from meshwright.files.run_io import new_run, write_environment, write_result
from meshwright.trainer.checkpoint_files import latest
from meshwright.trainer.data import check_enough, open_tokens, prepare
from meshwright.trainer.environment import environment
from meshwright.trainer.failure import explain, failures_file
from meshwright.trainer.membership import membership
from meshwright.trainer.options import TrainOptions, check_options, write_options
from meshwright.trainer.outcome import result_of
from meshwright.trainer.preflight import check_disk, check_machine, check_packages
from meshwright.trainer.rank import LOGS
from meshwright.trainer.ranks import rank_environment, running
from meshwright.trainer.watch import Watch

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
    check_options(options)
    check_packages()
    member = membership(os.environ, plan.layout.world)
    if member is not None:
        from meshwright.trainer.join import join

        return join(plan, options, progress, member, worker)
    check_machine(plan, options, progress)
    folder, ready = prepare_run(plan, options, progress)
    watch = Watch(folder.metrics, plan.layout.world, ready.steps, ready.log_every, progress)
    watch.skip_existing()
    run_ranks(plan.layout.world, folder, watch, worker)
    return finish(plan, folder, ready)


def prepare_run(plan: Plan, options: TrainOptions, progress: Callable[[str], None]) -> tuple[RunFolder, TrainOptions]:
    """Prepare the data, then make the run folder with all that the ranks read; the folder and the completed options.

    Raises InputError for text that does not fill a step, and for a folder that cannot be written.
    """
    arch, batch = plan.setup.proposal.arch, plan.batch
    check_disk(options.run)
    tokens = options.tokens or prepare(plan.setup.data, arch.vocab, progress)
    check_enough(open_tokens(tokens), batch.global_batch, batch.seq_len)
    folder = _resumed(options.run) if options.resume else new_run(options.run.absolute().parent, options.run.name)
    ready = replace(options, run=folder.root, tokens=tokens.absolute())
    try:
        write_plan(plan, folder.plan)
        write_options(ready)
        write_environment(environment(rank_environment(os.environ), Path.cwd()), folder.environment)
        if (tokens / "tokenizer.json").exists():
            shutil.copy(tokens / "tokenizer.json", folder.root / "tokenizer.json")
    except OSError as error:
        raise bad_input(f"cannot be written ({error.strerror})", file=str(error.filename or folder.root)) from error
    return folder, ready


def run_ranks(world: int, folder: RunFolder, watch: Watch, worker: str) -> None:
    """Start the ranks and wait for their end. Raises RunFailed (or what the worker itself raised)."""
    failures_file(folder.root).unlink(missing_ok=True)
    for words in (folder.root / LOGS).glob("*.error.json"):  # of an attempt before a resumption
        words.unlink()
    watch.progress(f"starting {world} rank{'s' if world > 1 else ''} in {folder.root}")
    with running(worker, folder.root, world, rank_environment(os.environ)) as agent:
        while agent.poll() is None:
            watch.look()
            time.sleep(_LOOK_S)
        watch.look()
    if agent.returncode:
        raise explain(folder.root, agent.returncode, watch.last.step if watch.last else None)


def finish(plan: Plan, folder: RunFolder, options: TrainOptions) -> RunResult:
    """The result of a run whose ranks all ended well, also written to `result.json`."""
    result = result_of(plan, folder)
    if result.steps < options.steps:
        raise RunFailed(f"the ranks ended after {result.steps} of {options.steps} steps (logs in {folder.root / LOGS})")
    try:
        write_result(result, folder.result)
    except OSError as error:
        raise RunFailed(f"{folder.result}: cannot be written ({error.strerror})") from error
    return result


def _resumed(run: Path) -> RunFolder:
    folder = RunFolder(run.absolute())
    if latest(folder.checkpoints) is None:
        raise bad_input("holds no complete checkpoint to resume from", file=str(folder.checkpoints))
    return folder
