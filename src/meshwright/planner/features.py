"""What layouts of the same degrees may differ in: schedule, chunks, recompute, ZeRO stage, batch."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from meshwright.files.setup import Setup
from meshwright.layout.batch import micro_batch_choices
from meshwright.layout.degrees import RECOMPUTE, SCHEDULES, Layout, Recompute, Schedule
from meshwright.layout.given import unit_names
from meshwright.layout.partition import even_stages
from meshwright.layout.predicates import sequence_multiple
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.schedules import V_SHAPED, default_placement, micro_batch_rule, takes_chunks
from meshwright.model.architecture import Architecture
from meshwright.planner.groups import Feature, Structure
from meshwright.planner.refusals import Refusals

_MOST_CHUNKS = 8
_PLAIN_FIRST: tuple[Schedule, ...] = ("1f1b", *(name for name in SCHEDULES if name != "1f1b"))  # ties go to 1F1B


def sequence_parallel(setup: Setup, structure: Structure, refuse: Refusals) -> bool:
    """As the user says; else on with tensor parallelism on GPUs where sequences divide and the framework has it."""
    proposal = setup.proposal
    if proposal.wanted.sp is not None:
        return proposal.wanted.sp
    if structure.tp == 1 or proposal.cluster.device.kind == "cpu":
        return False
    if proposal.seq_len % sequence_multiple(structure.tp, structure.cp, sp=True):
        return False
    layout = _representative(proposal.arch, replace(structure, sp=True), 0, "none", "1f1b", 1)
    return refuse(with_fixed(layout, proposal.wanted)) is None


NOT_SEARCHED = (
    "bucket_mib", "overlap", "gradient_exchange", "offload", "vocab_parallel", "loss_chunk", "vocab_multiple",
)  # fmt: skip
"""The parts of a layout that keep their defaults unless the job fixes them."""


def with_fixed(layout: Layout, wanted: Wanted) -> Layout:
    """The layout with the fixed ones among the parts that no search varies."""
    fixed = {name: value for name in NOT_SEARCHED if (value := getattr(wanted, name)) is not None}
    return replace(layout, **fixed) if fixed else layout


@lru_cache(maxsize=256)
def _even(arch: Architecture, stages: int) -> tuple[tuple[str, ...], ...]:
    return even_stages(arch, stages)


def _representative(
    arch: Architecture, s: Structure, zero: int, recompute: Recompute, schedule: Schedule, vpp: int
) -> Layout:
    """A layout with these features, its stages cut evenly."""
    return Layout(
        _even(arch, s.pp * vpp), default_placement(schedule, s.pp, vpp), s.dp, s.tp, s.pp, s.cp, s.ep, s.etp, vpp,
        s.sp, zero, s.shard_group, schedule, recompute,
    )  # fmt: skip


def _schedules(proposal: Proposal, pp: int) -> list[tuple[Schedule, int]]:
    """Schedules and chunks a rank that a pipeline of pp ranks may have."""
    wanted = proposal.wanted
    if pp == 1 and not wanted.placement:  # a V needs a pipeline to fold; any other order is the same on one rank
        return [] if wanted.schedule in V_SHAPED else [(wanted.schedule or "1f1b", 1)]
    most = len(unit_names(proposal.arch)) // pp
    fixed = wanted.vpp
    if wanted.stages is not None or wanted.placement is not None:
        fixed = max(1, len(wanted.placement or wanted.stages or ()) // pp)
    found: list[tuple[Schedule, int]] = []
    for schedule in _PLAIN_FIRST if wanted.schedule is None else (wanted.schedule,):
        several = [v for v in range(2, _MOST_CHUNKS + 1) if v * pp <= min(most * pp, proposal.arch.layers)]
        if schedule in V_SHAPED:
            chunks = [2] if most >= 2 else []
        elif schedule in ("gpipe", "1f1b") or schedule == "zb-h1":
            chunks = [1]
        else:
            chunks = several
        if fixed is not None:
            chunks = [fixed] if wanted.placement is not None or takes_chunks(schedule, pp, fixed) else []
        found += [(schedule, v) for v in chunks]
    return found


def _placement(proposal: Proposal, schedule: Schedule, pp: int, vpp: int) -> tuple[int, ...]:
    if proposal.wanted.placement is not None:
        return proposal.wanted.placement
    if pp == 1:
        return (0,) * vpp
    return default_placement(schedule, pp, vpp if schedule not in V_SHAPED else 2)


def _batches(proposal: Proposal, dp: int) -> tuple[tuple[int, int], ...]:
    """(micro-batch, micro-batches) that satisfy the equation, large micro-batches first."""
    wanted = proposal.wanted
    found = [(b, proposal.global_batch // (b * dp)) for b in micro_batch_choices(proposal.global_batch, dp)]
    return tuple(
        (b, m) for b, m in reversed(found) if wanted.micro_batch in (None, b) and wanted.micro_batches in (None, m)
    )


def _features(setup: Setup, structure: Structure, refuse: Refusals) -> tuple[tuple[Feature, ...], Mapping[str, int]]:
    """The features that the framework can run with these degrees; its first refusal of each other combination of
    schedule, chunks and recompute, and of how many."""
    proposal = setup.proposal
    wanted, arch = proposal.wanted, proposal.arch
    replicas = structure.dp * structure.cp > 1
    zeros: tuple[int, ...] = (0, 1, 2, 3) if replicas else (0,)
    if wanted.zero is not None:
        zeros = (wanted.zero,)
    fixed_cut = wanted.stages is not None or wanted.placement is not None
    found, reasons = [], Counter[str]()
    for schedule, vpp in _schedules(proposal, structure.pp):
        for recompute in RECOMPUTE if wanted.recompute is None else (wanted.recompute,):
            runs, refused = [], ""
            placement = _placement(proposal, schedule, structure.pp, vpp)
            for zero in zeros:
                if fixed_cut:
                    stages = wanted.stages or _even(arch, len(placement))
                    layout = Layout(
                        stages, placement, structure.dp, structure.tp, structure.pp, structure.cp, structure.ep,
                        structure.etp, vpp, structure.sp, zero, structure.shard_group, schedule, recompute,
                        wanted.recompute_layers,
                    )  # fmt: skip
                else:
                    layout = _representative(arch, structure, zero, recompute, schedule, vpp)
                    if wanted.recompute_layers is not None:
                        layout = replace(layout, recompute_layers=wanted.recompute_layers)
                reason = refuse(with_fixed(layout, wanted))
                if reason is None:
                    runs.append(zero)
                else:
                    refused = refused or reason
            if refused:
                reasons[refused] += 1
            if runs:
                inside = replace(layout, shard_group=1)
                shards = [
                    zero for zero in runs
                    if zero and replicas and refuse(with_fixed(replace(inside, zero=zero), wanted)) is None
                ]  # fmt: skip
                found.append(Feature(schedule, vpp, recompute, tuple(runs), tuple(shards), placement))
    return tuple(found), reasons


def _kind(proposal: Proposal, s: Structure) -> tuple[object, ...]:
    """What the features of degrees depend on: which axes are used, not how large they are (see `Refusals`)."""
    arch, wanted = proposal.arch, proposal.wanted
    if wanted.stages is not None or wanted.placement is not None or (wanted.vocab_multiple or 1) > 1:
        return (s,)
    return (
        s.dp > 1, s.tp > 1, s.pp, s.cp > 1, s.ep > 1, s.etp == s.tp, s.sp, s.shard_group in (None, s.dp * s.cp),
        arch.experts % s.ep == 0,
    )  # fmt: skip


class Parts:
    """What sets of degrees have in common, found once."""

    def __init__(self, setup: Setup, refuse: Refusals) -> None:
        self.setup, self.refuse = setup, refuse
        self.batches: dict[int, tuple[tuple[int, int], ...]] = {}
        self.features: dict[tuple[object, ...], tuple[tuple[Feature, ...], Mapping[str, int]]] = {}
        self.legal: dict[tuple[int, int, int], tuple[tuple[tuple[int, int], ...], ...]] = {}
        self.known: dict[tuple[Schedule, int, int, int], tuple[tuple[int, int], ...]] = {}

    def batches_of(self, dp: int) -> tuple[tuple[int, int], ...]:
        """All batches of so many replicas."""
        if dp not in self.batches:
            self.batches[dp] = _batches(self.setup.proposal, dp)
        return self.batches[dp]

    def features_of(self, structure: Structure) -> tuple[tuple[Feature, ...], Mapping[str, int]]:
        """As `_features`."""
        kind = _kind(self.setup.proposal, structure)
        if kind not in self.features:
            self.features[kind] = _features(self.setup, structure, self.refuse)
        return self.features[kind]

    def legal_of(self, dp: int, pp: int, features: tuple[Feature, ...]) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each feature the batches that its schedule has an order for."""
        key = dp, pp, id(features)  # equal ones are the same
        if key not in self.legal:
            self.legal[key] = tuple(self._scheduled(of.schedule, of.vpp, dp, pp) for of in features)
        return self.legal[key]

    def _scheduled(self, schedule: Schedule, vpp: int, dp: int, pp: int) -> tuple[tuple[int, int], ...]:
        key = schedule, vpp, dp, pp
        if key not in self.known:
            own = pp == 1 or self.setup.proposal.wanted.placement is not None
            all_of = self.batches_of(dp)
            found = (one for one in all_of if own or micro_batch_rule(schedule, pp, vpp, one[1]) is None)
            self.known[key] = tuple(found)
        return self.known[key]
