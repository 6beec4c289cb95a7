"""The spans that a run of our own recorded: one timeline a rank, joined."""

from pathlib import Path

from meshwright.basics.errors import bad_input
from meshwright.timeline.columns import Timeline, concatenate
from meshwright.timeline.storage import SPANS, load


def read_run(folder: Path) -> Timeline:
    """The timeline of all ranks of a run folder (spans/*.npz).

    `recorded` of the result lists the ranks that are there; `missing_ranks` compares it with a world size. Raises
    InputError when the run recorded no spans, a file is damaged, or its files disagree about mode or dilation.
    """
    files = sorted((Path(folder) / SPANS).glob("*.npz"))
    if not files:
        raise bad_input(
            "the run recorded no spans", file=str(folder), legal="train with a profiled phase to record some"
        )
    parts = [load(file) for file in files]
    try:
        return concatenate(parts)
    except ValueError as error:
        raise bad_input(str(error), file=str(folder)) from error


def missing_ranks(timeline: Timeline, world: int) -> tuple[int, ...]:
    """The ranks of a job of `world` ranks whose spans are absent."""
    return tuple(sorted(set(range(world)) - set(timeline.recorded)))
