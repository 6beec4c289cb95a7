"""The environment of a run against its layout: settings that serialise, slow down or forbid the fast path."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from meshwright.basics.errors import bad_input
from meshwright.diagnosis.said import Said, counted
from meshwright.files.findings import Finding, RankSplit
from meshwright.files.setup import Setup
from meshwright.layout.proposal import Wanted
from meshwright.traces.opening import text_of

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_LINE = re.compile(r"^\s*(?:export\s+)?([A-Z][A-Z0-9_]{1,80})=(.*)$")

Where = Literal["always", "several ranks", "several nodes"]

HURTFUL: tuple[tuple[str, tuple[str, ...], Where, str], ...] = (
    ("CUDA_LAUNCH_BLOCKING", ("1",), "always", "the host waits for every kernel: for debugging only"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", ("1",), "always", "every tensor is allocated by the driver, which stops it"),
    ("TORCH_DISTRIBUTED_DEBUG", ("DETAIL",), "several ranks", "every collective is checked by another before it"),
    ("NCCL_DEBUG", ("TRACE",), "several ranks", "every call is written to the log"),
    ("TORCH_NCCL_BLOCKING_WAIT", ("1",), "several ranks", "the host waits for each collective"),
    ("NCCL_BLOCKING_WAIT", ("1",), "several ranks", "the host waits for each collective"),
    ("NCCL_P2P_DISABLE", ("1",), "several ranks", "devices of one node go through host memory, not NVLink"),
    ("NCCL_SHM_DISABLE", ("1",), "several ranks", "devices without peer access go through the network"),
    ("NCCL_IB_DISABLE", ("1",), "several nodes", "nodes talk over sockets, not InfiniBand or RoCE"),
    ("NCCL_NET", ("SOCKET",), "several nodes", "nodes talk over sockets"),
    ("NCCL_SOCKET_IFNAME", ("LO",), "several nodes", "the loopback interface reaches no other node"),
)
"""Variable, values (in capitals) that hurt, where, and what they do: NCCL's and PyTorch's documentation."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What settings are judged against; degrees that are not known count as 1."""

    dp: int
    tp: int
    zero: int
    nodes: int
    world: int
    gpu: bool
    megatron: bool  # is the software Megatron's, with its own overlap of tensor-parallel communication?


def layout_of(setup: Setup) -> Layout:
    """The layout of a job or plan as far as it is fixed."""
    wanted: Wanted = setup.proposal.wanted
    cluster = setup.proposal.cluster
    tp = wanted.tp or 1
    dp = wanted.dp or max(1, cluster.gpus // (tp * (wanted.pp or 1) * (wanted.cp or 1)))
    megatron = setup.runnable_by == "megatron" or "megatron" in setup.stack.lower()
    return Layout(dp, tp, wanted.zero or 0, cluster.nodes, cluster.gpus, cluster.device.kind == "gpu", megatron)


def judge_settings(
    variables: Mapping[str, str], layout: Layout, splits: Sequence[RankSplit] = ()
) -> tuple[Finding, ...]:
    """Findings for settings that do not suit the layout; `splits` supply the exposed communication where measured."""
    if not layout.gpu:
        return ()
    found = []
    if layout.world > 1 and (wrong := _connections(variables.get(CONNECTIONS), layout)):
        value, words, right = wrong
        found.append(_finding(CONNECTIONS, value, words, right, splits, layout))
    for name, values, where, words in HURTFUL:
        given = variables.get(name)
        counts = where == "always" or (layout.world > 1 and (where == "several ranks" or layout.nodes > 1))
        if given is not None and given.strip().upper() in values and counts:
            found.append(_finding(name, given, words, None, splits, layout))
    return tuple(found)


def _connections(value: str | None, layout: Layout) -> tuple[str, str, str | None] | None:
    """One queue in order helps Megatron's overlap of tensor-parallel communication and serialises everybody else's."""
    single = value is not None and value.strip() == "1"
    shards = "gathers and reductions of shards" if layout.zero >= 3 else "the exchange of gradients"
    if single and layout.tp == 1 and layout.dp > 1:
        return "1", f"one queue to the device: {shards} will not overlap compute, and tp = 1 gains nothing from it", "8"
    if single and layout.tp > 1 and not layout.megatron:
        words = f"one queue to the device: {shards} will not overlap compute; only Megatron's own overlap needs it"
        return "1", words, "8"
    if not single and layout.tp > 1 and layout.megatron:
        words = "Megatron's overlap of tensor-parallel communication relies on kernels starting in the order of launch"
        return value or "not set", words, "1"
    return None


def _finding(
    name: str, value: str, words: str, right: str | None, splits: Sequence[RankSplit], layout: Layout
) -> Finding:
    exposed = max(splits, key=lambda split: split.exposed_comm_s, default=None)
    measured = ""
    if exposed is not None and exposed.window_s > 0 and exposed.comm_s > 0:
        share = exposed.exposed_comm_s / exposed.window_s
        measured = f"; measured: {exposed.exposed_comm_s / exposed.comm_s:.0%} of the communication is exposed, "
        measured += f"{share:.0%} of the step on rank {exposed.rank}"
    advice = "unset it, or 8 to 32" if right == "8" else f"set it to {right}" if right else "unset it"
    return Finding(
        kind="setting",
        ranks=(),
        stages=(),
        cause=f"{name} is {value}: {words} ({advice}){measured}",
        evidence={
            "variable": name, "value": value, "tp": layout.tp, "dp": layout.dp, "zero": layout.zero,
            "exposed_comm_s": None if not measured or exposed is None else exposed.exposed_comm_s,
        },
        cost_s_per_step=None,
        share=None,
        confidence="high" if name in ("CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING") else "medium",
        change={f"environment.{name}": right},
        predicted_gain=None,
        verify="run ten steps with and without the setting and compare the step time and the exposed communication",
    )  # fmt: skip


def read_variables(path: Path) -> dict[str, str]:
    """The variables in a run's environment.json, or in lines NAME=value. Raises InputError when there are none."""
    text = text_of(path, 1 << 26)
    if text.lstrip()[:1] == "{":
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise bad_input("JSON that is damaged or cut off", file=str(path)) from error
        variables = found.get("variables") if isinstance(found, dict) else None
        if not isinstance(variables, dict):
            raise bad_input("no variables in it", file=str(path))
        return {str(name): str(value) for name, value in variables.items()}
    matches = (_LINE.match(line) for line in text.splitlines())
    return {match.group(1): match.group(2).strip().strip("\"'") for match in matches if match}


def diagnose_settings(paths: Sequence[Path], setup: Setup | None) -> Said:
    """What environments say against a job's layout. Raises InputError when one cannot be read."""
    findings: list[Finding] = []
    notes: list[str] = []
    for path in paths:
        variables = read_variables(path)
        if setup is None:
            notes.append(f"{path.name}: settings are judged against a layout: give --job")
        else:
            findings += judge_settings(variables, layout_of(setup))
    return Said(counted(len(paths), "environment"), findings=tuple(findings), abstained=tuple(notes))
