"""Fit the free constants of the time model to the measured rows, and write them to `predictor/fitted.toml`.

    python bench/fit_constants.py [--rounds N] [--write] [--validate]

A few physical constants (efficiencies of device families, of quantised products, of memory and links) and for each
software stack a few habits (throughput of products and attention, element-wise traffic, the host's time, overlap) are
found by a robust Gauss-Newton fit of ln(predicted / measured): Huber loss, each configuration once (the latest where
re-measured), sources weighted so that a large one does not drown the others, and a prior at the physical guess of each
constant so that what the rows do not decide stays there. The rows of the single-node sweep count as one source.
Then each document is left out in turn, the errors of its rows are printed, and their spread by kind of plan becomes the
predicted range. `--write` writes the file; `--validate` leaves each whole repository or paper out as well.
"""

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from time_rows import DATA, Timed, latest, load, log_error

from meshwright.basics.figures import Constant
from meshwright.predictor import constants
from meshwright.predictor.spread import kind_of
from meshwright.predictor.stacks import stack_named, stacks
from meshwright.predictor.step import predict

OUT = Path(constants.__file__).with_name("fitted.toml")
HUBER = 0.08  # residuals beyond this share count linearly
STEP = 0.02  # of a parameter, for finite differences
SOURCE_POWER = 0.5  # weight of a source grows with its configurations to this power
PRIOR = 0.5  # weight of the prior: a deviation of one sigma costs as much as this many configurations one HUBER off


@dataclass(frozen=True)
class Free:
    """One free constant. In the fit it is ln(value), or the value itself for shares (`share`)."""

    name: str
    guess: float
    sigma: float
    read: Callable[[], float]
    write: Callable[[float], None]
    touches: Callable[[Timed], bool]
    share: bool = False

    def coordinate(self, value: float) -> float:
        """Of a value, in the fit."""
        return value if self.share else math.log(value)

    def value(self, coordinate: float) -> float:
        """Back; shares stay between 0 and 0.95."""
        return min(0.95, max(0.0, coordinate)) if self.share else math.exp(coordinate)


def _entry(table: dict[str, Constant], key: str, name: str, sigma: float, touches: Callable[[Timed], bool]) -> Free:
    def write(value: float) -> None:
        table[key] = replace(table[key], value=value)

    return Free(name, GUESSES.get(name, table[key].value), sigma, lambda: table[key].value, write, touches)


def _scalar(attribute: str, name: str, sigma: float, touches: Callable[[Timed], bool]) -> Free:
    def write(value: float) -> None:
        setattr(constants, attribute, replace(getattr(constants, attribute), value=value))

    def read() -> float:
        return float(getattr(constants, attribute).value)

    return Free(name, GUESSES.get(name, read()), sigma, read, write, touches)


def _knob(stack: str, knob: str, guess: float, sigma: float, share: bool = False) -> Free:
    known = stacks()

    def write(value: float) -> None:
        known[stack] = replace(known[stack], **{knob: value})
        stack_named.cache_clear()

    def touches(one: Timed) -> bool:
        return one.stack == stack

    return Free(f"{stack}.{knob}", guess, sigma, lambda: float(getattr(known[stack], knob)), write, touches, share)


GUESSES = {
    "gemm_efficiency.V100": 0.74, "gemm_efficiency.A100": 0.76, "gemm_efficiency.H": 0.70, "gemm_efficiency.B": 0.50,
    "gemm_efficiency.B300": 0.53, "gemm_efficiency.GB": 0.53, "gemm_efficiency.GB300": 0.60,
    "quantised_efficiency.fp8": 0.90, "quantised_efficiency.mxfp8": 0.85, "quantised_efficiency.nvfp4": 0.65,
    "memory_efficiency": 0.80, "collective_efficiency.intra": 0.80, "collective_efficiency.inter": 0.85,
    "collective_efficiency.all_to_all": 0.70, "expert_kernels": 30.0, "each_expert_kernels": 8.0, "permuted": 6.0,
    "scan": 40.0, "loss": 2.5, "scores_traffic": 0.8, "untuned.products": 0.88, "untuned.attention": 0.65,
}  # fmt: skip
"""Priors: what was published of single kernels and links, see `constants.py`."""

KNOBS: dict[str, dict[str, tuple[float, float, bool]]] = {
    "*": {"products": (1.0, 0.05, False), "passes": (1.0, 0.3, False)},
    "megatron-2024": {"tp_overlap": (0.6, 0.15, True)},
    "megatron-2025": {"tp_overlap": (0.6, 0.15, True)},
    "megatron-bridge": {"tp_overlap": (0.6, 0.15, True), "host": (2.5, 0.4, False)},
    "megatron-deepspeed": {"skew_us": (100.0, 0.7, False)},
    "megatron-deepspeed-2023": {"loss": (4.0, 0.1, False)},  # its host: the floor of the sweep, see stacks.toml
    "llm-foundry": {"attention": (0.7, 0.2, False)},
    "nanotron": {"passes": (1.4, 0.3, False), "step_ms": (50.0, 0.7, False)},  # operators that are not fused
    "maxtext": {"passes": (0.8, 0.3, False)},  # XLA fuses element-wise work
    "deepspeed": {"exchange": (0.1, 0.5, False)},
}
"""Guess, sigma and whether it is a share, of the habits that the fit finds; "*": of every stack with rows."""


def _on(names: Sequence[str]) -> Callable[[Timed], bool]:
    def touches(one: Timed) -> bool:
        name = one.plan.setup.proposal.cluster.device.name.upper()
        table = [key for key in constants.GEMM_EFFICIENCY if key != "cpu" and name.startswith(key)]
        return max(table, key=len) in names

    return touches


def _computes(precision: str) -> Callable[[Timed], bool]:
    return lambda one: one.plan.setup.proposal.training.precision == precision


def free_constants(rows: Sequence[Timed]) -> list[Free]:
    """Every constant that the fit may move, of those that touch any row."""
    many = Counter(one.stack for one in rows)
    gemm, quantised = constants.GEMM_EFFICIENCY, constants.QUANTISED_EFFICIENCY
    links = constants.COLLECTIVE_EFFICIENCY
    found = [
        *(
            _entry(gemm, key, f"gemm_efficiency.{key}", 0.1, _on((key,)))
            for key in ("V100", "A100", "H", "B", "B300", "GB", "GB300")
        ),
        *(_entry(quantised, key, f"quantised_efficiency.{key}", 0.15, _computes(key)) for key in quantised),
        _scalar("MEMORY_EFFICIENCY", "memory_efficiency", 0.1, lambda one: True),
        _entry(links, "intra", "collective_efficiency.intra", 0.1, lambda one: one.plan.layout.world > 1),
        _entry(links, "inter", "collective_efficiency.inter", 0.1, lambda one: one.plan.layout.world > 1),
        _entry(links, "all-to-all", "collective_efficiency.all_to_all", 0.15, lambda one: one.plan.layout.ep > 1),
        _scalar("EXPERT_KERNELS", "expert_kernels", 0.4, lambda one: one.plan.setup.proposal.arch.experts > 0),
        _scalar(
            "EACH_EXPERT_KERNELS", "each_expert_kernels", 0.3, lambda one: one.plan.setup.proposal.arch.experts > 0
        ),
        _scalar("SCAN", "scan", 0.7, lambda one: one.plan.setup.proposal.arch.scan_width > 0),
        _scalar(
            "SCORES_TRAFFIC",
            "scores_traffic",
            0.3,
            lambda one: "+scores" in one.plan.setup.stack or stacks()[one.stack].scores_bytes > 0,
        ),
        _scalar("LOSS", "loss", 0.3, lambda one: True),
        *(
            _entry(constants.UNTUNED, key, f"untuned.{key}", 0.15, lambda one: stacks()[one.stack].tuned_for != "")
            for key in constants.UNTUNED
        ),
        _scalar("PERMUTED", "permuted", 0.4, lambda one: one.plan.setup.proposal.arch.experts > 0),
    ]
    for stack in sorted(many):
        habits = {**KNOBS["*"], **KNOBS.get(stack, {})}
        found += [_knob(stack, knob, *about) for knob, about in habits.items()]
    return [one for one in found if any(one.touches(row) for row in rows)]


def weights(rows: Sequence[Timed]) -> NDArray[np.float64]:
    """By row: its source's weight, divided among the source's rows."""
    many = Counter(one.source for one in rows)
    return np.array([many[one.source] ** (SOURCE_POWER - 1) for one in rows])


def jacobian(rows: Sequence[Timed], free: Sequence[Free], at: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Residuals and their derivatives at a point."""
    set_to(free, at)
    residuals = np.array([log_error(one) for one in rows])
    slopes = np.zeros((len(rows), len(free)))
    for column, one in enumerate(free):
        one.write(one.value(at[column] + STEP))
        for index, row in enumerate(rows):
            if one.touches(row):
                slopes[index, column] = (log_error(row) - residuals[index]) / STEP
        one.write(one.value(at[column]))
    return residuals, slopes


def set_to(free: Sequence[Free], at: NDArray[np.float64]) -> None:
    """Use these constants from here on."""
    for one, coordinate in zip(free, at, strict=True):
        one.write(one.value(coordinate))


def solved(
    residuals: NDArray[np.float64], slopes: NDArray[np.float64], by_row: NDArray[np.float64], free: Sequence[Free],
    at: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """The point that minimises the Huber loss of the linearised residuals and the prior, by reweighting."""
    prior = np.array([one.coordinate(one.guess) for one in free])
    sigma = np.array([one.sigma for one in free])
    pull = PRIOR * HUBER**2 / sigma**2
    move = np.zeros(len(free))
    for _ in range(30):
        left = residuals + slopes @ move
        scale = by_row * np.minimum(1.0, HUBER / np.maximum(np.abs(left), 1e-12))
        normal = slopes.T @ (scale[:, None] * slopes) + np.diag(pull)
        wanted = -slopes.T @ (scale * residuals) - pull * (at - prior)
        move = np.linalg.solve(normal, wanted)
    return at + np.clip(move, -0.5, 0.5)


def report(rows: Sequence[Timed], errors: NDArray[np.float64], title: str) -> None:
    """Median, p90 and bias of rows that may be timed, by trust and source."""
    timed = [index for index, one in enumerate(rows) if not one.ranked_only]
    print(f"\n{title}")
    by_source: dict[str, list[float]] = defaultdict(list)
    for index in timed:
        by_source[f"{rows[index].source[:84]} {rows[index].plan.setup.proposal.cluster.device.name[:8]}"].append(
            float(errors[index])
        )
    for source, found in sorted(by_source.items(), key=lambda item: -median(abs(one) for one in item[1])):
        print(f"  {source:94} {len(found):3} {median(abs(one) for one in found):6.1%} {median(found):+7.1%}")
    for trust in ("AB", "A"):
        found = [float(errors[index]) for index in timed if rows[index].row.trust in trust]
        print(
            f"trust {trust}: {len(found)} configurations, median {np.median(np.abs(found)):.1%}, p90 "
            f"{np.percentile(np.abs(found), 90):.1%}, bias {np.median(found):+.1%}"
        )


def held_out_point(
    rows: Sequence[Timed], free: Sequence[Free], at: NDArray[np.float64], local: tuple[NDArray[np.float64], ...],
    kept: NDArray[np.bool_],
) -> NDArray[np.float64]:  # fmt: skip
    """The fit of the rows that are kept: from `at`, the fit of all, by its `jacobian` there."""
    residuals, slopes = local
    return solved(residuals[kept], slopes[kept], weights(rows)[kept], free, at)


def rows_to_fit() -> list[Timed]:
    """Each configuration once, and every fifth row of the sweep."""
    rows = [one for one in latest(load(DATA / "measurements.csv")[0]) if not one.ranked_only]
    return rows + load(DATA / "single_node_sweep.csv")[0][::5]


def held_out(
    rows: Sequence[Timed], free: Sequence[Free], at: NDArray[np.float64], local: tuple[NDArray[np.float64], ...],
    key: Callable[[Timed], str],
) -> NDArray[np.float64]:  # fmt: skip
    """ln(predicted / measured) of every row by constants that never saw its origin. `local`: `jacobian` there."""
    found = np.zeros(len(rows))
    names = [key(one) for one in rows]
    for name in sorted(set(names)):
        kept = np.array([other != name for other in names])
        set_to(free, held_out_point(rows, free, at, local, kept))
        for index in np.flatnonzero(~kept):
            found[index] = log_error(rows[index])
    set_to(free, at)
    return found


def ranges(rows: Sequence[Timed], errors: NDArray[np.float64]) -> list[str]:
    """The lines of the table of ranges: multiples of a prediction between which nine of ten measured steps lie, by
    kind, from `errors` = ln(predicted / measured) of held-out documents."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for one, error in zip(rows, errors, strict=True):
        if not one.ranked_only:
            found = predict(one.plan)
            by_kind[kind_of(one.plan.setup, found.terms, found.step_time_s)].append(-float(error))
    lines = ["", "[ranges]  # 5 % and 95 % quantiles of measured over predicted, documents held out"]
    for kind, logs in sorted(by_kind.items()):
        low, high = np.exp(np.quantile(logs, (0.05, 0.95)))
        print(f"range of {kind}: {low:.3f} to {high:.3f}, {len(logs)} configurations")
        lines.append(f"{kind} = [{min(low, 0.97):.3f}, {max(high, 1.03):.3f}]")
    return lines


def written(free: Sequence[Free], at: NDArray[np.float64], rows: Sequence[Timed]) -> str:
    """The data file, without ranges."""
    sources = len({one.source for one in rows})
    lines = [
        "# Written by bench/fit_constants.py; do not edit. Priors and meaning: constants.py and stacks.py.",
        f'source = "bench/fit_constants.py over {len(rows)} configurations of {sources} sources in data/measurements"',
        "", "[constants]",
    ]  # fmt: skip
    of_stacks: dict[str, list[str]] = defaultdict(list)
    for one, coordinate in zip(free, at, strict=True):
        value = f"{one.value(coordinate):.4g}"
        stack, _, knob = one.name.rpartition(".")
        if stack in stacks():
            of_stacks[stack].append(f"{knob} = {float(value)}")
        else:
            lines.append(f'"{one.name}" = {float(value)}')
    lines += ["", "[stacks]"]
    for stack, knobs in sorted(of_stacks.items()):
        lines += [f"[stacks.{stack}]", *knobs]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, print, and write where asked."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--write", action="store_true")
    options.add_argument("--validate", action="store_true")
    asked = options.parse_args()
    rows = rows_to_fit()
    free = free_constants(rows)
    at = np.array([one.coordinate(one.read()) for one in free])
    by_row = weights(rows)
    for turn in range(asked.rounds):
        residuals, slopes = jacobian(rows, free, at)
        now = np.expm1(residuals[[not one.ranked_only for one in rows]])
        print(f"round {turn}: median {np.median(np.abs(now)):.2%}, bias {np.median(now):+.2%}", flush=True)
        at = solved(residuals, slopes, by_row, free, at)
    set_to(free, at)
    for one, coordinate in zip(free, at, strict=True):
        print(f"{one.name:40} {one.guess:8.3g} -> {one.value(coordinate):8.3g}")
    report(rows, np.expm1([log_error(one) for one in rows]), "fitted to all sources")
    text = written(free, at, rows)
    if asked.validate or asked.write:
        local = jacobian(rows, free, at)
        errors = held_out(rows, free, at, local, lambda one: one.source)
        report(rows, np.expm1(errors), "each document held out")
        text += "\n".join(ranges(rows, errors)) + "\n"
    if asked.write:
        OUT.write_text(text, encoding="utf-8")
    if asked.validate:
        errors = held_out(rows, free, at, local, lambda one: one.origin)
        report(rows, np.expm1(errors), "each repository or paper held out")


if __name__ == "__main__":
    main()
