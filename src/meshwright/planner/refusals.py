"""What the framework that a job names can run."""

from meshwright.files.setup import Setup
from meshwright.layout.degrees import Layout
from meshwright.layout.runners import RUNNERS, first_refusal

Stages = tuple[tuple[str, ...], ...]


def whole_layers(setup: Setup) -> bool:
    """Must stages begin and end between layers? Only our own trainer cuts inside one."""
    return setup.runnable_by != "meshwright" or setup.proposal.arch.parallel_residual


def refusal(setup: Setup, layout: Layout) -> str | None:
    """Why the framework that the job names cannot run the layout; None when it can, or when any will do."""
    names = RUNNERS if setup.runnable_by == "any" else (setup.runnable_by,)
    found = []
    for name in names:
        reason = first_refusal(name, setup.proposal.arch, setup.proposal.training, layout)
        if reason is None:
            return None
        found.append(f"{name} {reason}")
    return "; ".join(found)


class Refusals:
    """Refusals remembered by what they depend on: which axes are used, not how large their degrees are, and how the
    model is cut (see `layout/runners.py`)."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.known: dict[tuple[object, ...], str | None] = {}
        self.cuts: dict[int, tuple[object, tuple[bool, int]]] = {}

    def __call__(self, layout: Layout) -> str | None:
        partial = layout.shard_group is not None and layout.shard_group != layout.dp * layout.cp
        key = (
            layout.dp > 1, layout.tp > 1, layout.pp, layout.cp > 1, layout.ep > 1, layout.etp == layout.tp, layout.sp,
            layout.zero, partial, layout.schedule, layout.placement, layout.recompute, layout.recompute_layers is None,
            self.setup.proposal.arch.experts % layout.ep == 0, layout.tp if layout.vocab_multiple > 1 else 0,
            self._cut(layout.stages),
        )  # fmt: skip
        if key not in self.known:
            self.known[key] = refusal(self.setup, layout)
        return self.known[key]

    def _cut(self, stages: Stages) -> tuple[bool, int]:
        """Whether a layer is cut, and by how many units of layers the stages differ."""
        found = self.cuts.get(id(stages))
        if found is None or found[0] is not stages:
            layers = [len(stage) - ("embed" in stage) - ("head" in stage) for stage in stages]
            found = self.cuts[id(stages)] = stages, (any(count % 2 for count in layers), max(layers) - min(layers))
        return found[1]
