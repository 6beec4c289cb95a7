"""Proof by training: do layouts give the same losses and gradient norms as one process, on the same data?

Imports no torch: the training happens in real processes, started once for all cases.
"""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import InputError, RunFailed, bad_input
from meshwright.files.outputs_run import ParityOutput, ParityRow
from meshwright.files.plan import Plan
from meshwright.files.strict_json import dump, load_as
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout, describe
from meshwright.model.units import units_of
from meshwright.trainer.courses import LAST_WORDS, Case, Course
from meshwright.trainer.failure import is_echo
from meshwright.trainer.preflight import check_memory, check_packages
from meshwright.trainer.ranks import rank_environment
from meshwright.trainer.unsupported import unsupported

TOLERANCE = 1e-5  # relative, fp32


def parity(
    plans: Sequence[Plan], steps: int = 10, *, tolerance: float = TOLERANCE, timeout_s: float = 60.0,
    progress: Callable[[str], None] = lambda line: None,
) -> ParityOutput:  # fmt: skip
    """Train each plan and its one-process reference for `steps` steps in fp32 on the same synthetic tokens.

    Compared in this order: initial weights, each step's loss and gradient norm (before clipping), final weights, and
    whether copies on several ranks are still equal to the bit. Differences are relative. Raises InputError for plans
    that the trainer cannot run, RunFailed when a process fails or hangs longer than `timeout_s`.
    """
    refused = [complaint for plan in plans for complaint in unsupported(_in_fp32(plan))]
    if not plans:
        raise bad_input("no plan to compare")
    if refused:
        raise InputError(tuple(refused))
    check_packages()
    check_memory(max(plan.layout.world for plan in plans))
    cases = [_in_fp32(plan) for plan in plans]
    references: list[Plan] = []
    for plan in cases:
        reference = one_process(plan)
        if reference not in references:
            references.append(reference)
    progress(f"training {len(cases)} layouts and {len(references)} reference(s), {steps} steps each")
    courses = train_all([*references, *cases], steps, timeout_s, progress)
    rows, first = [], None
    for plan, course in zip(cases, courses[len(references) :], strict=True):
        expected = courses[references.index(one_process(plan))]
        largest, difference = compare(expected, course, tolerance)
        label = f"{plan.setup.name}: {describe(plan.layout)}"
        if difference and first is None:
            first = f"{label}: {difference}"
        row = ParityRow(
            plan=label, ranks=plan.layout.world, equal=difference is None, largest_difference=largest,
            losses=list(course.losses),
        )  # fmt: skip
        rows.append(row)
    return ParityOutput(mode="measured", equal=first is None, compared=steps, first_difference=first, table=rows)


def compare(expected: Course, found: Course, tolerance: float) -> tuple[float, str | None]:
    """The largest relative difference of any loss or norm, and what differs first by more than the tolerance."""
    pairs = [("the norm of the initial weights", expected.weights_before, found.weights_before)]
    for step, values in enumerate(
        zip(expected.losses, found.losses, expected.grad_norms, found.grad_norms, strict=True), 1
    ):
        pairs += [(f"loss of step {step}", *values[:2]), (f"gradient norm of step {step}", *values[2:])]
    pairs.append(("the norm of the final weights", expected.weights_after, found.weights_after))
    differences = [abs(theirs - ours) / max(abs(ours), 1e-12) for _, ours, theirs in pairs]
    largest = max(differences)
    for (what, ours, theirs), difference in zip(pairs, differences, strict=True):
        if not difference <= tolerance:  # also true of nan
            return largest, f"{what} is {theirs:.9g}, not {ours:.9g} ({difference:.1e} relative)"
    if found.drifted:
        return largest, f"copies of {', '.join(found.drifted[:3])} differ between ranks"
    return largest, None


def one_process(plan: Plan) -> Plan:
    """The reference of a plan: the same model, recipe and global batch in a single micro-batch loop on one rank."""
    units = tuple(unit.name for unit in units_of(plan.setup.proposal.arch))
    batch = plan.batch
    single = Batch(batch.global_batch, batch.micro_batch, batch.global_batch // batch.micro_batch, batch.seq_len)
    setup = replace(plan.setup, name="one process")
    return Plan(setup, Layout(stages=(units,), placement=(0,)), single)


def _in_fp32(plan: Plan) -> Plan:
    training = replace(plan.setup.proposal.training, precision="fp32", gradient_dtype="fp32")
    return replace(plan, setup=replace(plan.setup, proposal=replace(plan.setup.proposal, training=training)))


def synthetic_tokens(vocab: int, count: int, seed: int) -> NDArray[np.uint32]:
    """Tokens [count] with something to learn: three times in four a token follows from the one before."""
    rng = np.random.default_rng(seed)
    follows, noise = rng.random(count) < 0.75, rng.integers(0, vocab, count)
    tokens = noise.copy()
    for index in range(1, count):
        if follows[index]:
            tokens[index] = (3 * tokens[index - 1] + 7) % vocab
    return tokens.astype(np.uint32)


def train_all(plans: Sequence[Plan], steps: int, timeout_s: float, progress: Callable[[str], None]) -> list[Course]:
    """Train every plan in turn in one set of processes. Raises RunFailed with what a failing rank said last."""
    folder = Path(tempfile.mkdtemp(prefix="meshwright-parity-"))
    try:
        # Which windows a plan trains on follows from the number of tokens: a plan's own, whatever else is compared.
        tokens: dict[tuple[int, int], Path] = {}
        cases = []
        for plan in plans:
            need = plan.setup.proposal.arch.vocab, plan.batch.global_batch * plan.batch.seq_len * steps + 1
            if need not in tokens:
                tokens[need] = _write_tokens(folder / "tokens{}-{}".format(*need), *need)
            cases.append(Case(plan, steps, tokens[need], timeout_s))
        (folder / "cases.pickle").write_bytes(pickle.dumps(cases))
        _run(folder, max(plan.layout.world for plan in plans), len(plans), timeout_s, progress)
        return [load_as(folder / f"course{index}.json", Course) for index in range(len(plans))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_tokens(folder: Path, vocab: int, count: int) -> Path:
    folder.mkdir()
    synthetic_tokens(vocab, count, seed=0).tofile(folder / "tokens.bin")
    header = {"dtype": "uint32", "count": count, "vocab": vocab, "documents": 1, "text_bytes": 0, "corpus": "synthetic"}
    dump(header, folder / "header.json")
    return folder


def _run(folder: Path, ranks: int, n_cases: int, timeout_s: float, progress: Callable[[str], None]) -> None:
    """Start the ranks and wait; when one fails, end the others and say what it said."""
    logs = [(folder / f"rank{rank}.log").open("w+") for rank in range(ranks)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "meshwright.trainer.parity_rank", str(folder), str(rank)], stdout=log, stderr=log,
            env=rank_environment(os.environ),
        )
        for rank, log in enumerate(logs)
    ]  # fmt: skip
    try:
        said, spoke = 0, time.monotonic()
        while any(process.poll() is None for process in processes):
            failed = [rank for rank, process in enumerate(processes) if process.poll()]
            if failed:
                time.sleep(1.0)  # let the others say why, too: the first to end need not be the cause
                raise RunFailed(_last_words(logs, [r for r, p in enumerate(processes) if p.poll()]))
            done = sum((folder / f"course{index}.json").exists() for index in range(n_cases))
            if done > said or time.monotonic() - spoke > 4.5:
                said, spoke = done, time.monotonic()
                progress(f"{done} of {n_cases} trained")
            time.sleep(0.1)
        failed = [rank for rank, process in enumerate(processes) if process.returncode]
        if failed:
            raise RunFailed(_last_words(logs, failed))
    finally:
        for process in processes:
            process.kill()
        for process, log in zip(processes, logs, strict=True):
            process.wait()
            log.close()


def _last_words(logs: Sequence[IO[str]], ranks: Sequence[int]) -> str:
    """What each failed rank said; the first cause before ranks that merely lost a peer, or aborted without a word."""
    said: list[tuple[int, str]] = []
    for rank in ranks:
        lines = Path(logs[rank].name).read_text(errors="replace").splitlines()
        words = [line.removeprefix(LAST_WORDS) for line in lines if line.startswith(LAST_WORDS)]
        aborts = [line.strip() for line in lines if line.startswith(("Fatal", "  what()"))]
        text = (words or aborts or ["ended without a word"])[-1]
        said.append((2 if is_echo(text) else 0 if words else 1, f"rank {rank}: {text}"))
    return "\n".join(text for _, text in sorted(said))
