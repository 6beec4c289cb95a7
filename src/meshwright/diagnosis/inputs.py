"""`diagnose PATH...`: every input by its kind, and one diagnosis of all they say."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from meshwright.basics.errors import InputError, bad_input
from meshwright.diagnosis.said import Said
from meshwright.files.findings import Diagnosis, Finding
from meshwright.files.run import RunFolder
from meshwright.files.setup import Setup
from meshwright.traces.recognise import Input, Recognition, recognise


def diagnose_inputs(
    paths: Sequence[Path | str],
    setup: Setup | None = None,
    *,
    cache: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Diagnosis:
    """Diagnose whatever the paths are: a run folder, or files, folders and globs of every kind that is read.

    `setup` supplies model and cluster where a figure needs them; large traces come from a cache of what was kept of
    them, unless `cache` is off; `progress` gets lines while they are read. Raises InputError when an input cannot be
    read, or run folders and other paths are mixed.
    """
    given = [Path(path) for path in paths]
    runs = [path for path in given if path.is_dir() and RunFolder(path).metrics.exists()]
    if runs and len(given) > 1:
        raise bad_input("one run at a time, not mixed with other paths", value=[str(path) for path in given])
    if runs:
        from meshwright.diagnosis.diagnose import diagnose_run

        return _with_settings(diagnose_run(runs[0]), RunFolder(runs[0]))
    inputs = recognise(given)
    found = None
    if traces := inputs.of(Input.KINETO):
        from meshwright.diagnosis.diagnose import diagnose_paths

        found = diagnose_paths(traces, cache=cache, said=progress)
    said: list[Said] = []
    failed: list[InputError] = []
    for say in _readers(inputs, setup):
        try:
            said.append(say())
        except InputError as error:
            if any(path.is_file() for path in given):
                raise
            failed.append(error)  # in a folder: say what the others say
    if inputs.of(Input.RECORDER) or inputs.of(Input.LOG):
        from meshwright.diagnosis.logs import diagnose_logs

        said += diagnose_logs(inputs.of(Input.RECORDER), inputs.of(Input.LOG), setup)
    if failed and found is None and not said:
        raise failed[0]
    notes = [*inputs.notes, *(f"could not be read: {' '.join(str(error).split())}" for error in failed)]
    return _joined(tuple(str(path) for path in given), found, said, notes)


def _with_settings(found: Diagnosis, run: RunFolder) -> Diagnosis:
    """The diagnosis of a run and what its recorded environment adds."""
    if not run.environment.exists():
        return found
    from meshwright.diagnosis.settings import judge_settings, layout_of, read_variables
    from meshwright.files.plan_toml import read_plan

    added = judge_settings(read_variables(run.environment), layout_of(read_plan(run.plan).setup), found.ranks)
    return replace(found, findings=(*found.findings, *added))


def _readers(inputs: Recognition, setup: Setup | None) -> list[Callable[[], Said]]:
    """What reads each kind that is there; imported only then."""
    readers: list[Callable[[], Said]] = []
    if exports := inputs.of(Input.NSIGHT):
        from meshwright.diagnosis.nsight import diagnose_nsight

        readers.append(lambda: diagnose_nsight(exports))
    if snapshots := inputs.of(Input.SNAPSHOT):
        from meshwright.diagnosis.memory import diagnose_snapshots

        readers.append(lambda: diagnose_snapshots(snapshots))
    if operations := inputs.of(Input.OPERATIONS):
        from meshwright.diagnosis.operations import diagnose_operations

        readers.append(lambda: diagnose_operations(operations, setup))
    if trees := inputs.of(Input.PROTON):
        from meshwright.diagnosis.kernels import diagnose_proton

        readers.append(lambda: diagnose_proton(trees))
    if environments := inputs.of(Input.ENVIRONMENT):
        from meshwright.diagnosis.settings import diagnose_settings

        readers.append(lambda: diagnose_settings(environments, setup))
    if rates := inputs.of(Input.THROUGHPUT):
        from meshwright.diagnosis.scaling import diagnose_throughput

        readers.append(lambda: diagnose_throughput(rates, setup))
    if timings := inputs.of(Input.TIMING):
        from meshwright.diagnosis.timing import diagnose_timing

        readers.append(lambda: diagnose_timing(timings))
    if routing := inputs.of(Input.ROUTING):
        from meshwright.diagnosis.experts import diagnose_routing

        readers.append(lambda: diagnose_routing(routing, setup))
    return readers


def _joined(paths: tuple[str, ...], found: Diagnosis | None, said: Sequence[Said], notes: Sequence[str]) -> Diagnosis:
    """One diagnosis of all. Splits of traces of different kinds are not mixed: the first that has any is shown."""
    window = "; ".join([*([found.window] if found else []), *(one.window for one in said)])
    base = found or Diagnosis(paths, "measured", window, (), {}, {}, (), ())
    findings = [*base.findings, *(finding for one in said for finding in one.findings)]
    splits = base.ranks or next((one.ranks for one in said if one.ranks), ())
    memory, tables = dict(base.memory), dict(base.tables)
    abstained = [*notes, *base.abstained]
    for one in said:
        memory |= one.memory
        tables |= one.tables
        abstained += one.abstained
    return replace(
        base, inputs=paths, window=window, ranks=splits, memory=memory, tables=tables, abstained=tuple(abstained),
        bubble=base.bubble or next((one.bubble for one in said if one.bubble), {}),
        findings=tuple(sorted(findings, key=_recoverable, reverse=True)),
        step_time_s=base.step_time_s or next((one.step_time_s for one in said if one.step_time_s), None),
    )  # fmt: skip


def _recoverable(finding: Finding) -> tuple[float, float]:
    """Share of the step, then time: a hang costs all of a step of unknown length."""
    return finding.share or 0.0, finding.cost_s_per_step or 0.0
