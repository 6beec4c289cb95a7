"""Expert routing counts: how unevenly tokens reach experts and the ranks that hold them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input
from meshwright.diagnosis.said import Said, counted
from meshwright.diagnosis.thresholds import UNEVEN
from meshwright.files.findings import Finding
from meshwright.files.setup import Setup
from meshwright.layout.experts import spread, worst_over_mean
from meshwright.traces.tables import CsvTable, read_csv

_MOST = 100_000  # ranks or experts: beyond it a column is something else


@dataclass(frozen=True)
class LayerLoad:
    """One MoE layer: tokens of each expert and of each rank, summed over steps; `by_rank` None where nothing says who
    holds which expert. `held` is the number of experts of each rank."""

    layer: int
    by_expert: NDArray[np.float64]
    by_rank: NDArray[np.float64] | None
    held: tuple[int, ...]


def diagnose_routing(paths: Sequence[Path], setup: Setup | None) -> Said:
    """What routing counts say. Raises InputError when a table cannot be read."""
    tables: dict[str, object] = {}
    findings: list[Finding] = []
    notes: list[str] = []
    for path in paths:
        table = read_csv(
            path, ("layer", "expert", "tokens"), ("step", "rank"), filled=("layer", "expert", "tokens", "rank")
        )
        notes += table.notes
        loads = _loads(table, setup, notes)
        tables[str(path)] = [_figures(load) for load in loads]
        findings += _judged(path, loads)
    return Said(counted(len(tables), "table") + " of routing counts", tables=tables, findings=tuple(findings),
                abstained=tuple(notes))  # fmt: skip


def _loads(table: CsvTable, setup: Setup | None, notes: list[str]) -> list[LayerLoad]:
    layer, expert = table.whole("layer"), table.whole("expert")
    rank = table.whole("rank") if "rank" in table.numbers else None
    for name, values in (("expert", expert), ("rank", rank), ("layer", layer)):
        if values is not None and values.max() >= _MOST:
            raise bad_input(f"must be less than {_MOST}", field=name, value=int(values.max()), file=str(table.path))
    arch_experts = setup.proposal.arch.experts if setup is not None else 0
    experts = max(int(expert.max()) + 1, arch_experts or 0)
    ep = setup.proposal.wanted.ep if setup is not None else None
    held_by = _holders(layer, expert, rank, experts, ep, notes, table.path.name)
    ranks = max(int(rank.max()) + 1 if rank is not None and held_by is not None else 0, ep or 0)
    loads = []
    for number in np.unique(layer).tolist():
        mine = layer == number
        by_expert = np.bincount(expert[mine], table.numbers["tokens"][mine], experts).astype(np.float64)
        by_rank: NDArray[np.float64] | None = None
        held: tuple[int, ...] = ()
        if held_by is not None:
            holder = held_by[number] if isinstance(held_by, dict) else held_by
            count = max(ranks, int(holder.max()) + 1)
            known = holder >= 0
            by_rank = np.bincount(holder[known], by_expert[known], count).astype(np.float64)
            held = tuple(np.bincount(holder[known], minlength=count).tolist())
        loads.append(LayerLoad(number, by_expert, by_rank, held))
    return loads


def _holders(
    layer: NDArray[np.int64], expert: NDArray[np.int64], rank: NDArray[np.int64] | None, experts: int, ep: int | None,
    notes: list[str], name: str,
) -> dict[int, NDArray[np.int64]] | NDArray[np.int64] | None:  # fmt: skip
    """The rank that holds each expert, by layer; -1 where no line names it. `rank` is the holder where each expert
    has one; where an expert has several, it is who sent the tokens, and the job's ep says who holds them."""
    if rank is not None:
        found: dict[int, NDArray[np.int64]] = {}
        single = True
        for number in np.unique(layer).tolist():
            mine = layer == number
            pairs = np.unique(np.column_stack([expert[mine], rank[mine]]), axis=0)
            single = single and len(np.unique(pairs[:, 0])) == len(pairs)
            holder = np.full(experts, -1)
            holder[pairs[:, 0]] = pairs[:, 1]
            found[number] = holder
        if single:
            return found
        notes.append(f"{name}: an expert has lines of several ranks: those are read as the senders of the tokens")
    if ep:
        return np.repeat(np.arange(ep), spread(experts, ep))
    notes.append(f"{name}: nothing says which rank holds which expert (--job with layout.ep would): ranks not judged")
    return None


def _ratio(loads: NDArray[np.float64]) -> float:
    return float(loads.max() / loads.mean()) if loads.sum() > 0 else 1.0


def _figures(load: LayerLoad) -> dict[str, object]:
    by_rank = load.by_rank
    worst = None if by_rank is None else _ratio(by_rank)
    return {
        "layer": load.layer, "tokens": float(load.by_expert.sum()), "experts": len(load.by_expert),
        "expert_max_over_mean": _ratio(load.by_expert), "busiest_expert": int(load.by_expert.argmax()),
        "ranks": None if by_rank is None else len(by_rank), "rank_max_over_mean": worst,
        "experts_max_over_mean": None if not load.held else _ratio(np.array(load.held, float)),
        "useful_share": None if worst is None else 1 / worst,
        "worst_case": None if by_rank is None else {"all tokens to one rank": float(len(by_rank))},
    }  # fmt: skip


def _judged(path: Path, loads: Sequence[LayerLoad]) -> list[Finding]:
    found = []
    for load in loads:
        if load.held and -(-len(load.by_expert) // len(load.held)) < max(load.held):
            found.append(_placed(path, load))
            break
    busy = [load for load in loads if load.by_rank is not None and load.by_rank.sum() > 0]
    if busy:
        worst = max(busy, key=lambda load: _ratio(load.by_rank) if load.by_rank is not None else 0)
        assert worst.by_rank is not None
        expected = _ratio(np.array(worst.held, float))
        if _ratio(worst.by_rank) >= UNEVEN and _ratio(worst.by_rank) > 1.05 * (expected if found else 1.0):
            found.append(_uneven(path, worst, len(busy)))
    return found


def _placed(path: Path, load: LayerLoad) -> Finding:
    experts, ranks = len(load.by_expert), len(load.held)
    now, after = _ratio(np.array(load.held, float)), worst_over_mean(experts, ranks)
    even = spread(experts, ranks)
    return _finding(
        "experts placed unevenly", (int(np.argmax(load.held)),),
        f"{experts} experts lie on {ranks} ranks as {list(load.held)}: the fullest holds {now:.2g} times the mean; "
        f"{even.count(max(even))} ranks of {max(even)} and {even.count(min(even))} of {min(even)} would make that "
        f"{after:.2f}",
        {"file": str(path), "held": list(load.held), "max_over_mean": now, "max_over_mean_if_spread": after},
        "spread the experts so that counts differ by one at most, and count again",
    )  # fmt: skip


def _uneven(path: Path, load: LayerLoad, layers: int) -> Finding:
    assert load.by_rank is not None
    ratio, ranks = _ratio(load.by_rank), len(load.by_rank)
    idle = int((load.by_rank == 0).sum())
    best = max(float(load.by_expert.max()), float(load.by_rank.mean())) / float(load.by_rank.mean())
    return _finding(
        "expert imbalance", (int(load.by_rank.argmax()),),
        f"in layer {load.layer} (the worst of {layers}) one rank gets {ratio:.2g} times the mean of {ranks} ranks"
        + (f", {idle} get nothing" if idle else "")
        + f": {1 / ratio:.1%} of the layer's expert time is useful, and its activations take {ratio:.2g} times the "
        "balanced memory there",
        {
            "file": str(path), "layer": load.layer, "rank_max_over_mean": ratio, "useful_share": 1 / ratio,
            "activation_memory_ratio": ratio, "idle_ranks": idle, "expert_max_over_mean": _ratio(load.by_expert),
            "best_possible_max_over_mean": best, "tokens_by_rank": load.by_rank.tolist()[:64],
        },
        "balance the router (auxiliary loss or bias), or move busy experts apart; count the tokens again",
    )  # fmt: skip


def _finding(kind: str, ranks: tuple[int, ...], cause: str, evidence: dict[str, object], verify: str) -> Finding:
    return Finding(
        kind=kind, ranks=ranks, stages=(), cause=cause, evidence=evidence, cost_s_per_step=None, share=None,
        confidence="high", change={}, predicted_gain=None, verify=verify,
    )  # fmt: skip
