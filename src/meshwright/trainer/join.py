"""Train as one rank of a launch made by torchrun or srun: rank 0 makes the run folder, the others learn where it is."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.basics.errors import AnswerIsNo, InputError, RunFailed
from meshwright.files.plan import Plan
from meshwright.files.run import RunFolder, RunResult
from meshwright.files.run_io import read_result
from meshwright.trainer.launch import finish, prepare_run
from meshwright.trainer.membership import Membership
from meshwright.trainer.options import TrainOptions
from meshwright.trainer.rank import LOGS, run_worker
from meshwright.trainer.watch import Watch

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

_RUN, _DONE, _LEFT = "run", "done", "left"
_MEETING = timedelta(minutes=5)  # between the start of the first rank and of the last
_LEAVING_S = 30.0
_PREPARING = timedelta(hours=1)  # the longest that rank 0 may read text


def join(
    plan: Plan, options: TrainOptions, progress: Callable[[str], None], member: Membership, worker: str
) -> RunResult:
    """Be one rank of `member`'s launch until the run is over. All ranks must see the same file system.

    Only rank 0 reports steps. Raises InputError from rank 0's preparation there, RunFailed on every rank that cannot
    go on.
    """
    os.environ.update(member.variables())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with _reaching(member):
        store = _store(member)
    if member.rank == 0:
        try:
            folder, ready, since = prepare_run(plan, options, progress)
        except BaseException:
            store.set(_RUN, "")
            _wait_for_others(store, member.world)
            raise
        store.set(_RUN, str(folder.root))
        watch = Watch(folder.metrics, member.world, ready.steps, ready.log_every, progress)
        watch.skip_existing()
        with _watching(watch):
            _work(worker, folder.root, member)
        result = finish(plan, folder, ready, progress, since)
        store.set(_DONE, "1")
        _wait_for_others(store, member.world)
        return result
    with _reaching(member):
        run = store.get(_RUN).decode()
    if not run:
        store.add(_LEFT, 1)
        raise RunFailed(f"rank {member.rank}: rank 0 could not prepare the run")
    _work(worker, Path(run), member)
    with _reaching(member):
        store.wait([_DONE], timedelta(seconds=options.timeout_s))
    result = read_result(RunFolder(Path(run)).result)
    store.add(_LEFT, 1)
    return result


def _store(member: Membership) -> "Store":
    """Where the ranks agree on the run folder: the launcher's own store, or one that rank 0 hosts for all."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    hosts = member.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    tcp = TCPStore(
        member.address, member.port, member.world, is_master=hosts, timeout=_MEETING, wait_for_workers=False,
        multi_tenant=True,
    )  # fmt: skip
    tcp.set_timeout(_PREPARING)
    # Keys of their own for each attempt: the launcher's store outlives a restart.
    return PrefixStore("meshwright" + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), tcp)


@contextmanager
def _reaching(member: Membership) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's network and store errors
        reason = (str(error).splitlines() or [""])[0]
        place = f"{member.address}:{member.port}"
        raise RunFailed(f"rank {member.rank} of {member.world} lost rank 0 at {place}: {reason}") from error


def _work(worker: str, run: Path, member: Membership) -> None:
    (run / LOGS).mkdir(exist_ok=True)
    try:
        run_worker(worker, run)
    except (InputError, AnswerIsNo, RunFailed):
        raise
    except Exception as error:
        raise RunFailed(f"rank {member.rank} of {member.world} failed: {type(error).__name__}: {error}") from error


@contextmanager
def _watching(watch: Watch) -> Iterator[None]:
    """Report steps from a thread beside the training."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(0.5):
            watch.look()

    thread = threading.Thread(target=follow, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        watch.look()


def _wait_for_others(store: "Store", world: int) -> None:
    """The store may live in this process: leave last."""
    deadline = time.monotonic() + _LEAVING_S
    with contextlib.suppress(RuntimeError):
        while store.add(_LEFT, 0) < world - 1 and time.monotonic() < deadline:
            time.sleep(0.05)
