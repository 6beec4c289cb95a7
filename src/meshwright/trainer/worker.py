"""One rank of a run: joins the group, builds its part, runs the phases.

`python -m meshwright.trainer.worker RUN_DIR`, under torchrun's environment variables.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import HashStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from meshwright.basics.errors import AnswerIsNo, InputError, RunFailed, bad_input
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import read_plan
from meshwright.files.run import RunFolder
from meshwright.trainer.checkpoint import SharedRows, load_latest, save, training_state
from meshwright.trainer.data import open_tokens
from meshwright.trainer.engine import Engine
from meshwright.trainer.export import export
from meshwright.trainer.models.names import split_dim
from meshwright.trainer.options import TrainOptions, read_options
from meshwright.trainer.parallel.mesh import join_groups
from meshwright.trainer.phases import run_phases
from meshwright.trainer.step import TIED
from meshwright.trainer.torch_versions import check_version
from meshwright.trainer.unsupported import unsupported
from meshwright.trainer.weights import Weights

SCALE = "training.loss_scale"  # name in a checkpoint


def main(run: Path) -> None:
    """Run this rank to its end. Raises InputError and AnswerIsNo for what cannot start, RunFailed for what broke."""
    options = read_options(run)
    plan = read_plan(RunFolder(run).plan)
    refused = unsupported(plan)
    if refused:
        raise InputError(refused)
    check_version()
    if options.tokens is None:
        raise bad_input("no prepared tokens are named", field="tokens", file=str(run / "options.json"))
    torch.set_num_threads(1)
    device = device_of(plan, options, int(os.environ.get("LOCAL_RANK", "0")))
    join(plan.layout.world, device, options.timeout_s, os.environ)
    engine: Engine | None = None
    try:
        with saying_where(lambda: engine):
            arch = plan.setup.proposal.arch
            given = None if options.weights is None or options.resume else Weights(options.weights, arch)
            engine = Engine(plan, device, weights=given)
            run_with_checkpoints(engine, options, options.tokens)
            if options.export:
                export(engine, RunFolder(run).model, tokenizer=run / "tokenizer.json")
    finally:
        dist.destroy_process_group()


def run_with_checkpoints(engine: Engine, options: TrainOptions, tokens: Path) -> None:
    """All phases; from the newest checkpoint when resuming, saving as often as the options say and at the end.

    Collective.
    """
    folder = RunFolder(options.run)
    if not options.checkpoint_every and not options.resume:
        return run_phases(engine, options, open_tokens(tokens), 0, lambda done: None)
    state = state_of(engine)
    first = (load_latest(state, folder.checkpoints) or 0) if options.resume else 0
    if first:
        resume(engine, state)

    def after_step(done: int) -> None:
        every = options.checkpoint_every
        if every and (done % every == 0 or done == options.steps):
            save(done, state_of(engine), folder.checkpoints)

    run_phases(engine, options, open_tokens(tokens), first, after_step)


def state_of(engine: Engine) -> dict[str, Tensor]:
    """What a checkpoint of this rank holds; the tensors share their storage with the engine's. Collective."""
    parts, mesh = engine.parts, engine.mesh
    tied = {TIED[1]: TIED[0]} if engine.plan.setup.proposal.arch.tied else None
    shared = None
    if mesh.shard.size > 1:
        grid = join_groups(mesh.tp, mesh.shard, ("tp", "shard"), engine.device.type)
        shared = SharedRows(grid, parts.rows)
    state = training_state(parts.owned, engine.optimizer, split_dim, mesh.device_mesh["tp"], tied, shared)
    return {**state, SCALE: torch.tensor(engine.scale.numbers(), dtype=torch.float64)}


def resume(engine: Engine, state: Mapping[str, Tensor]) -> None:
    """Take over a loaded state where its tensors are not the engine's own. Collective."""
    engine.scale.restore(state[SCALE].tolist())
    engine.parts.replicas.gather()


def device_of(plan: Plan, options: TrainOptions, local_rank: int) -> torch.device:
    """The GPU of this rank when the plan is for GPUs, they are there and their real time is wanted; else the CPU."""
    emulated = all(phase.mode == "emulated" for phase in options.phases)
    if plan.setup.proposal.cluster.device.kind == "gpu" and torch.cuda.is_available() and not emulated:
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    return torch.device("cpu")


def join(world: int, device: torch.device, timeout_s: float, variables: Mapping[str, str]) -> None:
    """Join the default process group that torchrun's `variables` describe.

    Each restart gets keys of its own in the agent's store: gloo would dial the addresses of the attempt before.
    Raises RunFailed when the launcher started another number of ranks than the plan has.
    """
    started = int(variables.get("WORLD_SIZE", "1"))
    if started != world:
        raise RunFailed(f"the plan has {world} ranks, {started} were started")
    timeout = timedelta(seconds=timeout_s)
    rank = int(variables.get("RANK", "0"))
    if "MASTER_ADDR" in variables:
        hosted = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        tcp = TCPStore(
            variables["MASTER_ADDR"], int(variables["MASTER_PORT"]), is_master=rank == 0 and not hosted,
            timeout=timeout, multi_tenant=True,  # a process that joined a launch may host this store already
        )  # fmt: skip
        store: Store = PrefixStore("try" + variables.get("TORCHELASTIC_RESTART_COUNT", "0"), tcp)
    else:
        store = HashStore()
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)


@contextmanager
def saying_where(engine_of: Callable[[], Engine | None]) -> Iterator[None]:
    """Give an error the rank, its coordinates, the step and the action in which it happened."""
    try:
        yield
    except (InputError, AnswerIsNo, RunFailed):
        raise
    except Exception as error:
        engine, where = engine_of(), f"rank {os.environ.get('RANK', '0')}"
        if engine is not None:
            where += f" ({engine.mesh.coordinates()}), step {engine.recorder.step}"
            where += f", {engine.clock.doing}" if engine.clock.doing else ""
        raise RunFailed(f"{where}: {type(error).__name__}: {str(error).strip()}") from error


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except KeyboardInterrupt:
        os._exit(130)
