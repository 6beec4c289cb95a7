"""Kineto files of a dp x tp x pp job, made from the pipeline simulator, with faults planted on purpose.

Every rank computes its share of each pipeline action in a few kernels, each followed by an all-reduce over its tensor
group; stages hand activations over in send and receive kernels that begin when the rank is free and end when the data
has come; gradients are exchanged in buckets over the data-parallel group. Waiting arises by itself: a collective ends
for all when the last has come. Times are µs with fractions, as the profiler writes them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.layout.schedules import actions
from meshwright.predictor.pipeline import simulate
from meshwright.timeline.columns import Action, Kind

KERNELS = 3  # a pipeline action
HOP = 60.0
TENSOR_BYTES, HOP_BYTES = 4 << 20, 2 << 20


@dataclass(frozen=True)
class Job:
    """A job and what is wrong with it. Times in µs; `rank = (stage * dp + replica) * tp + tensor rank`."""

    dp: int = 2
    tp: int = 1
    pp: int = 1
    micro_batches: int = 4
    schedule: str = "1f1b"
    steps: int = 4
    forward: float = 3000.0
    noise: float = 0.01
    seed: int = 0
    stage_factors: Mapping[int, float] = field(default_factory=dict)
    slow_ranks: Mapping[int, float] = field(default_factory=dict)
    late_ranks: Mapping[int, float] = field(default_factory=dict)  # idle µs of the host before its first kernel
    wandering: float = 1.0  # another rank is that much slower in each step
    slow_group: tuple[int, ...] = ()
    link_factor: float = 3.0
    buckets: Sequence[int] = (30 << 20, 25 << 20, 25 << 20, 9 << 20)  # bytes
    link: float = 60_000.0  # bytes a µs
    hidden: bool = True
    every_micro_batch: bool = False
    host_gap: float = 0.0  # µs between kernels that the host needs to launch the next
    gap_name: str = ""
    offsets: Mapping[int, float] = field(default_factory=dict)  # clock error of each rank
    missing: Sequence[int] = ()
    numbered: bool = True
    metadata: bool = True
    kernel_name: str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    communication: bool = True

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.dp * self.tp * self.pp

    def factor_of(self, group: tuple[int, ...]) -> float:
        """How many times as long transfers of a group take."""
        return self.link_factor if self.slow_group and group == self.slow_group else 1.0

    def rank(self, stage: int, replica: int, tensor: int) -> int:
        """The rank at a place."""
        return (stage * self.dp + replica) * self.tp + tensor


class _Writer:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.events: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(job.world)}
        self.numbers: dict[tuple[int, ...], int] = {}
        self.correlation = 0

    def kernel(self, rank: int, name: str, start: float, end: float, stream: int, lead: float, **args: Any) -> None:
        self.correlation += 1
        args |= {"device": rank % 8, "stream": stream, "correlation": self.correlation}
        self.add(rank, "kernel", name, start, end, stream, args)
        call = start - lead
        self.add(rank, "cuda_runtime", "cudaLaunchKernel", call, call + 4, 900, {"correlation": self.correlation})

    def add(
        self, rank: int, cat: str, name: str, start: float, end: float, tid: int, args: Mapping[str, Any] | None = None
    ) -> None:
        start += self.job.offsets.get(rank, 0.0)
        length = round(max(end + self.job.offsets.get(rank, 0.0) - start, 0.001), 3)
        event = {"ph": "X", "cat": cat, "name": name, "pid": rank, "tid": tid, "ts": round(start, 3), "dur": length,
                 "args": dict(args or {})}  # fmt: skip
        self.events[rank].append(event)

    def collective(
        self, what: str, starts: Mapping[int, float], transfer: float, size: int, use: str, stream: int = 20
    ) -> float:
        """One collective: it ends for all when the last has come and the transfer is done. Returns the end."""
        job, group = self.job, tuple(sorted(starts))
        end = max(starts.values()) + transfer * job.factor_of(group)
        self.numbers[group] = number = self.numbers.get(group, -1) + 1
        if not job.communication:
            return end
        for rank, start in starts.items():
            args: dict[str, Any] = {}
            if job.metadata:
                args = {"Collective name": what, "Process Group Ranks": json.dumps(group), "Group size": len(group),
                        "In msg nelems": size // 2, "Out msg nelems": size // 2, "dtype": "BFloat16",
                        "Process Group Description": use}  # fmt: skip
                if job.numbered:
                    args["Seq"] = number
            self.kernel(rank, job.kernel_name, start, end, stream, 200.0, **args)
        return end


def write_job(job: Job, folder: Path) -> Path:
    """Write the files of all ranks (but the missing ones) into `folder`; returns it."""
    writer, rng, at = _Writer(job), np.random.default_rng(job.seed), 1_000_000.0
    for step in range(job.steps):
        slow = dict(job.slow_ranks)
        if job.wandering != 1.0:
            slow = {int(rng.integers(job.world)): job.wandering}
        end = _step(job, writer, at, slow, rng)
        for rank in range(job.world):
            writer.add(rank, "user_annotation", f"ProfilerStep#{step + 5}", at - 250, end - 300, 900)
            writer.add(rank, "gpu_user_annotation", f"ProfilerStep#{step + 5}", at - 1, end + 1, 7)
        at = end + 50.0
    folder.mkdir(parents=True, exist_ok=True)
    for rank, events in writer.events.items():
        if rank in job.missing:
            continue
        info = {"backend": "nccl", "rank": rank, "world_size": job.world}
        document = {"schemaVersion": 1, "deviceProperties": [{"id": rank % 8}], "distributedInfo": info,
                    "traceEvents": events}  # fmt: skip
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return folder


@dataclass
class _Times:
    """When ranks of a step are free, and when each backward that is followed by an exchange began and ended."""

    free: dict[int, float]
    started: set[int] = field(default_factory=set)
    backwards: dict[int, list[tuple[float, float]]] = field(default_factory=dict)


def _step(job: Job, writer: _Writer, at: float, slow: Mapping[int, float], rng: np.random.Generator) -> float:
    """One step from `at`; returns its end."""
    own = np.empty((job.pp, job.dp, job.tp))
    for place in np.ndindex(*own.shape):
        factor = job.stage_factors.get(place[0], 1.0) * slow.get(job.rank(*place), 1.0)
        own[place] = job.forward * factor * (1 + job.noise * rng.standard_normal())
    times = _Times(dict.fromkeys(range(job.world), at))
    orders = actions(job.schedule, tuple(range(job.pp)), job.micro_batches)
    for replica in range(job.dp):
        tensor = np.array([KERNELS * _tensor_transfer(job, stage, replica) for stage in range(job.pp)])
        cost = own[:, replica].max(axis=1) + tensor + KERNELS * job.host_gap
        line = simulate(
            orders, tuple(range(job.pp)), cost * 1e-6, 2 * cost * 1e-6, hop_s=HOP * 1e-6 * (job.pp > 1)
        ).timeline(0)  # fmt: skip
        late = max(job.late_ranks.get(job.rank(s, replica, t), 0.0) for s in range(job.pp) for t in range(job.tp))
        for number, span in enumerate(np.argsort(line.start, kind="stable").tolist()):
            if line.kind[span] != Kind.COMPUTE:
                continue
            stage, action, micro = int(line.stage[span]), Action(int(line.action[span])), int(line.micro_batch[span])
            start = at + (late if number else 0.0) + line.start[span] / 1000
            _action(job, writer, (stage, replica), action, start, own[stage, replica], times)
            if action is not Action.FORWARD and (job.every_micro_batch or micro == job.micro_batches - 1):
                for t in range(job.tp):
                    rank = job.rank(stage, replica, t)
                    times.backwards.setdefault(rank, []).append((start, times.free[rank]))
    end = max(_exchange(job, writer, times).values())
    for rank in range(job.world):
        writer.kernel(rank, "multi_tensor_adam", end, end + 300, 7, 6.0 if job.host_gap else 100.0)
    return end + 300


def _tensor_transfer(job: Job, stage: int, replica: int) -> float:
    """µs of one all-reduce of activations on a stage's tensor group."""
    if job.tp == 1:
        return 0.0
    group = tuple(job.rank(stage, replica, t) for t in range(job.tp))
    return 2 * (job.tp - 1) / job.tp * TENSOR_BYTES / job.link * (job.link_factor if group == job.slow_group else 1.0)


def _action(
    job: Job, writer: _Writer, place: tuple[int, int], action: Action, start: float, own: Any, times: _Times
) -> None:
    """The kernels of one action on a stage's tensor group, with the receive before it."""
    stage, replica = place
    ranks = [job.rank(stage, replica, t) for t in range(job.tp)]
    times_as_long = 1 if action is Action.FORWARD else 2
    source = stage - 1 if action is Action.FORWARD else stage + 1
    for t, rank in enumerate(ranks if 0 <= source < job.pp else ()):
        arrival = start - HOP
        starts = {rank: min(times.free[rank], arrival), job.rank(source, replica, t): arrival}
        writer.collective("recv", starts, HOP, HOP_BYTES, "pp", 30 if action is Action.FORWARD else 31)
    at = start
    for piece in range(KERNELS):
        starts = {}
        for t, rank in enumerate(ranks):
            late = job.late_ranks.get(rank, 0.0) if rank not in times.started and not piece else 0.0
            begin = at + times_as_long * job.host_gap + late
            writer.kernel(rank, f"gemm_{piece}", begin, begin + times_as_long * own[t] / KERNELS, 7,
                          6.0 if job.host_gap or late else 400.0)  # fmt: skip
            if job.host_gap and job.gap_name:
                writer.add(rank, "cpu_op", job.gap_name, at, begin - 6, 900)
            starts[rank] = begin + times_as_long * own[t] / KERNELS
        at = max(starts.values())
        if job.tp > 1:
            transfer = times_as_long * _tensor_transfer(job, stage, replica) / job.factor_of(tuple(ranks))
            at = writer.collective("allreduce", starts, transfer, TENSOR_BYTES * times_as_long, "tp")
    times.free.update(dict.fromkeys(ranks, at))
    times.started.update(ranks)


def _exchange(job: Job, writer: _Writer, times: _Times) -> dict[int, float]:
    """Gradient buckets over the replicas, behind the backwards or after them; when each rank is done."""
    ends = dict(times.free)
    for stage, t in np.ndindex(job.pp, job.tp):
        group = [job.rank(stage, replica, t) for replica in range(job.dp)]
        for turn in range(len(times.backwards[group[0]]) if job.dp > 1 else 0):
            for k, size in enumerate(job.buckets):
                starts = {}
                for rank in group:
                    first, last = times.backwards[rank][turn]
                    ready = first + (last - first) * (0.2 + 0.5 * k / len(job.buckets)) if job.hidden else last
                    starts[rank] = max(ready, ends[rank] if turn or k else 0.0) if not job.hidden else ready
                transfer = 2 * (job.dp - 1) / job.dp * size / job.link
                end = writer.collective("allreduce", starts, transfer, size, "dp", 25 + (k if job.hidden else 0))
                ends.update({rank: max(ends[rank], end) for rank in group})
    return ends
