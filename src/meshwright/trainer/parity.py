"""Proof by training: do layouts give the same losses and gradient norms as one process, on the same data?

Imports no torch: the training happens in real processes, started once for all cases.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import InputError, bad_input
from meshwright.files.outputs_run import ParityOutput, ParityRow
from meshwright.files.plan import Plan
from meshwright.files.strict_json import dump
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout, describe
from meshwright.model.units import units_of
from meshwright.trainer.courses import OWN, Case, Course, Difference
from meshwright.trainer.data import DOCUMENTS, HEADER, TOKENS, Header
from meshwright.trainer.pool import Job, Pool
from meshwright.trainer.preflight import check_memory, check_packages
from meshwright.trainer.suspicion import explain
from meshwright.trainer.unsupported import unsupported

TOLERANCE = 1e-5  # relative, fp32
FIRST_LOSS = 1e-6  # relative, fp32: nothing has been updated yet
NORM = 2e-5  # relative, fp32, of a gradient norm
WEIGHTS = 1e-3  # relative, fp32, of one parameter after a few steps: AdamW divides small gradients by themselves
_SAY_S = 4.5  # between two lines of progress, while one plan trains


def parity(
    plans: Sequence[Plan], steps: int = 10, *, tolerance: float = TOLERANCE, timeout_s: float = 60.0,
    progress: Callable[[str], None] = lambda line: None, pool: Pool | None = None,
) -> ParityOutput:  # fmt: skip
    """Train each plan and its one-process reference for `steps` steps in fp32 on the same synthetic tokens, in samples
    of unequal length.

    Compared in this order: initial weights (to the bit), the first loss, each parameter's first gradient, each step's
    loss and gradient norm (before clipping), final weights, and whether copies on several ranks are still equal to the
    bit. Differences are relative. The ranks of `pool` are used if it is given. Raises InputError for plans that the
    trainer cannot run, RunFailed when a process fails or hangs longer than `timeout_s`.
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
    own = [references.index(one_process(plan)) for plan in cases]
    beside = [*[None] * len(references), *own]
    courses = train_all([*references, *cases], steps, timeout_s, progress, pool, beside, ragged=True)
    rows, first = [], None
    for plan, course, reference_of in zip(cases, courses[len(references) :], own, strict=True):
        largest, difference = compare(courses[reference_of], course, tolerance)
        label = f"{plan.setup.name}: {describe(plan.layout)}"
        if difference and "gradient" in difference:
            one = courses[reference_of]
            losses, norms = (one.losses[0], course.losses[0]), (one.grad_norms[0], course.grad_norms[0])
            difference += explain(plan.layout.tp, losses, norms)
        if difference and first is None:
            first = f"{label}: {difference}"
        row = ParityRow(
            plan=label, ranks=plan.layout.world, equal=difference is None, largest_difference=largest,
            losses=list(course.losses),
        )  # fmt: skip
        rows.append(row)
    return ParityOutput(mode="measured", equal=first is None, compared=steps, first_difference=first, table=rows)


def compare(expected: Course, found: Course, tolerance: float) -> tuple[float, str | None]:
    """The largest relative difference of any loss or norm, and what differs first by more than its bound: `tolerance`,
    but `FIRST_LOSS` for the loss before any update and `NORM` for gradient norms."""
    pairs = [("the norm of the initial weights", expected.weights_before, found.weights_before, tolerance)]
    for step, values in enumerate(
        zip(expected.losses, found.losses, expected.grad_norms, found.grad_norms, strict=True), 1
    ):
        first = min(FIRST_LOSS, tolerance) if step == 1 else tolerance
        pairs.append((f"loss of step {step}", *values[:2], first))
        pairs.append((f"gradient norm of step {step}", *values[2:], max(NORM, tolerance)))
    pairs.append(("the norm of the final weights", expected.weights_after, found.weights_after, tolerance))
    differences = [abs(theirs - ours) / max(abs(ours), 1e-12) for _, ours, theirs, _ in pairs]
    said = [
        None if difference <= bound else f"{what} is {theirs:.9g}, not {ours:.9g} ({difference:.1e} relative)"
        for (what, ours, theirs, bound), difference in zip(pairs, differences, strict=True)  # nan is said as well
    ]
    initial = f"initial weights of {', '.join(found.initial[:3])} are not equal to the bit" if found.initial else None
    drifted = f"copies of {', '.join(found.drifted[:3])} differ between ranks" if found.drifted else None
    gradient = _beyond("the first gradient of", found.gradients, OWN)
    final = _beyond("the final weights of", found.weights, WEIGHTS)
    in_order = [said[0], initial, said[1], gradient, *said[2:-1], final, said[-1], drifted]
    return max(differences), next((words for words in in_order if words is not None), None)


def _beyond(what: str, differences: Sequence[Difference], bound: float) -> str | None:
    """Names the parameter that differs most, if by more than the bound."""
    worst = differences[0] if differences else None
    if worst is None or worst.relative <= bound:
        return None
    return f"{what} {worst.name} differs by {worst.relative:.1e} of its norm"


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


def train_all(
    plans: Sequence[Plan], steps: int, timeout_s: float, progress: Callable[[str], None] = lambda line: None,
    pool: Pool | None = None, beside: Sequence[int | None] = (), ragged: bool = False,
) -> list[Course]:  # fmt: skip
    """Train every plan in turn in one set of processes, those of `pool` if one is given.

    Plans that heed documents find some of 2 to 39 tokens. `ragged`: samples of the others end early. `beside[i]` is the
    index of an earlier plan whose parameters the i-th's are compared with, or None. Raises RunFailed with what a
    failing rank said last.
    """
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="meshwright-parity-")))
        pool = pool or held.enter_context(Pool())
        # Which windows a plan trains on follows from the number of tokens: a plan's own, whatever else is compared.
        tokens: dict[tuple[int, int], Path] = {}
        courses: list[Course] = []
        said = time.monotonic()

        def waiting() -> None:
            nonlocal said
            if time.monotonic() - said > _SAY_S:
                said = time.monotonic()
                progress(f"{len(courses)} of {len(plans)} trained")

        for index, plan in enumerate(plans):
            need = plan.setup.proposal.arch.vocab, plan.batch.global_batch * plan.batch.seq_len * steps + 1
            if need not in tokens:
                tokens[need] = _write_tokens(folder / "tokens{}-{}".format(*need), *need)
            other = beside[index] if beside else None
            case = Case(
                plan, steps, tokens[need], timeout_s, folder / f"kept{index}" if index in beside else None,
                None if other is None else folder / f"kept{other}", ragged,
            )  # fmt: skip
            job = Job("meshwright.trainer.parity_rank:train_case", (case,), plan.layout.world, timeout_s)
            courses.append(pool.run(job, waiting)[0])
            progress(f"{len(courses)} of {len(plans)} trained")
        return courses


def _write_tokens(folder: Path, vocab: int, count: int) -> Path:
    folder.mkdir()
    synthetic_tokens(vocab, count, seed=0).tofile(folder / TOKENS)
    bounds = np.cumsum([0, *np.random.default_rng(0).integers(2, 40, count // 2)])
    bounds = np.append(bounds[bounds < count], count).astype(np.int64)
    bounds.tofile(folder / DOCUMENTS)
    dump(Header("uint32", count, vocab, len(bounds) - 1, 0, "synthetic"), folder / HEADER)
    return folder
