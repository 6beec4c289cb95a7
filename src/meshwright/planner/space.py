"""The space of layouts: every combination that the fixed parts, the rules and the chosen framework leave open.

Cheap by construction: rules are asked once for each set of degrees and frameworks once for each set of features;
micro-batches, schedules and ZeRO stages are then counted out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from meshwright.files.setup import Setup
from meshwright.layout.batch import divisors, micro_batch_choices
from meshwright.layout.degrees import RECOMPUTE, SCHEDULES, Layout, Recompute, Schedule, degrees_text
from meshwright.layout.given import unit_names
from meshwright.layout.partition import even_stages
from meshwright.layout.predicates import sequence_multiple
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.rules import LEGALITY
from meshwright.layout.schedules import V_SHAPED, default_placement, micro_batch_rule, takes_chunks
from meshwright.model.architecture import Architecture
from meshwright.planner.refusals import Refusals
from meshwright.predictor.compute import Share

_MOST_CHUNKS = 8
_PLAIN_FIRST: tuple[Schedule, ...] = ("1f1b", *(name for name in SCHEDULES if name != "1f1b"))  # ties go to 1F1B


@dataclass(frozen=True, slots=True)
class Structure:
    """The degrees of a layout."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int
    sp: bool
    shard_group: int | None = None

    def text(self) -> str:
        """`dp 4 × tp 2`."""
        return degrees_text(self)


@dataclass(frozen=True, slots=True)
class Group:
    """Layouts that differ in the ZeRO stage only; their stages are cut alike. Groups are equal whose layouts are, ZeRO
    stages aside."""

    structure: Structure
    micro_batch: int
    micro_batches: int
    recompute: Recompute
    schedule: Schedule
    vpp: int
    zeros: tuple[int, ...] = field(compare=False)
    placement: tuple[int, ...]

    def share(self, seq_len: int) -> Share:
        """What one rank of these layouts computes."""
        s = self.structure
        return Share(self.micro_batch, seq_len, s.tp, s.sp, s.cp, s.ep, s.etp, self.recompute)


@dataclass(frozen=True, slots=True)
class Feature:
    """What layouts of the same degrees may differ in beside the batch, and the ZeRO stages that run with it."""

    schedule: Schedule
    vpp: int
    recompute: Recompute
    zeros: tuple[int, ...]
    placement: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """All groups of one set of degrees: each feature with each of its batches, (micro-batch, micro-batches), large
    micro-batches first. Families of the same kind hold the same `features` and `batches` objects."""

    structure: Structure
    features: tuple[Feature, ...]
    batches: tuple[tuple[tuple[int, int], ...], ...]  # by feature

    def group(self, feature: int, batch: int) -> Group:
        """One of its groups."""
        of, (micro_batch, micro_batches) = self.features[feature], self.batches[feature][batch]
        return Group(
            self.structure, micro_batch, micro_batches, of.recompute, of.schedule, of.vpp, of.zeros, of.placement
        )


@dataclass(frozen=True, slots=True)
class Rejection:
    """Layouts that were left out for one reason. `count` counts layouts, or sets of degrees where a rule forbids
    them all."""

    family: str
    count: int
    reason: str


@dataclass(frozen=True)
class Space:
    """Every group of layouts that may run, by degrees, and what was left out."""

    families: tuple[Family, ...]
    rejected: tuple[Rejection, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups: many objects where the cluster is large."""
        return tuple(
            family.group(feature, batch)
            for family in self.families
            for feature, batches in enumerate(family.batches)
            for batch in range(len(batches))
        )

    @property
    def size(self) -> int:
        """Number of layouts."""
        return sum(
            len(of.zeros) * len(batches)
            for family in self.families for of, batches in zip(family.features, family.batches, strict=True)
        )  # fmt: skip


def _free(fixed: int | None, choices: Sequence[int]) -> Sequence[int]:
    return choices if fixed is None else (fixed,)


def degrees(proposal: Proposal) -> Iterator[Structure]:
    """Every dp, tp, pp, cp, ep whose product fills the cluster, in the order dp first; the rules judge them later."""
    arch, gpus, wanted = proposal.arch, proposal.cluster.gpus, proposal.wanted
    pinned = len(set(wanted.placement)) if wanted.placement and wanted.pp is None else wanted.pp
    for tp in _free(wanted.tp, divisors(gpus)):
        for pp in _free(pinned, divisors(max(1, gpus // tp))):
            for cp in _free(wanted.cp, divisors(max(1, gpus // (tp * pp)))):
                for dp in _free(wanted.dp, (gpus // (tp * pp * cp),)):
                    if dp * tp * pp * cp != gpus:
                        continue
                    etp = (tp if arch.experts else 1) if wanted.etp is None else wanted.etp
                    ranks = dp * cp * tp
                    spread = [ep for ep in divisors(arch.experts or 1) if ranks % (ep * etp) == 0]
                    for ep in _free(wanted.ep, spread):
                        yield Structure(dp, tp, pp, cp, ep, etp, False, wanted.shard_group)


def _with(wanted: Wanted, structure: Structure) -> Wanted:
    return replace(
        wanted, dp=structure.dp, tp=structure.tp, pp=structure.pp, cp=structure.cp, ep=structure.ep,
        etp=structure.etp, sp=wanted.sp,
    )  # fmt: skip


def _sequence_parallel(setup: Setup, structure: Structure, refuse: Refusals) -> bool:
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
    if structure.shard_group is not None and wanted.shard_group is None:
        zeros = (1, 2, 3)
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
                found.append(Feature(schedule, vpp, recompute, tuple(runs), placement))
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


class _Parts:
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


def space(setup: Setup, refuse: Refusals | None = None) -> Space:
    """Enumerate every layout that the rules allow and the named framework can run, and count the rest with reasons.
    `refuse` remembers what the framework refused in another space of the same job."""
    proposal = setup.proposal
    families: list[Family] = []
    rules: dict[tuple[str, str], int] = {}
    refused: dict[tuple[str, str], int] = {}
    parts = _Parts(setup, refuse or Refusals(setup))
    for bare in degrees(proposal):
        wanted = replace(_with(proposal.wanted, bare), micro_batch=None, micro_batches=None)
        judged = replace(proposal, wanted=wanted)
        broken = next((rule for rule in LEGALITY if not rule.holds(judged)), None)
        if broken is not None:
            rules[bare.text(), f"[{broken.name}] {broken.explain(judged).message}"] = 1
            continue
        structure = replace(bare, sp=_sequence_parallel(setup, bare, parts.refuse))
        batches = parts.batches_of(structure.dp)
        if not batches:
            rule = f"[batch-equation] a global batch of {proposal.global_batch} has no fitting micro-batch on this dp"
            rules[structure.text(), rule] = 1
            continue
        features, reasons = parts.features_of(structure)
        for reason, count in reasons.items():
            key = (structure.text(), reason)
            refused[key] = refused.get(key, 0) + count * len(batches)
        if features:
            families.append(Family(structure, features, parts.legal_of(structure.dp, structure.pp, features)))
    left_out = [Rejection(family, count, reason) for (family, reason), count in rules.items()]
    left_out += _merged(refused)
    return Space(tuple(family for family in families if any(family.batches)), tuple(left_out))


def _merged(refused: dict[tuple[str, str], int]) -> list[Rejection]:
    """One rejection a reason, naming the families it hits."""
    by_reason: dict[str, dict[str, int]] = {}
    for (family, reason), count in refused.items():
        by_reason.setdefault(reason, {})[family] = count
    return [
        Rejection(
            next(iter(families)) + (f" and {len(families) - 1} more" if len(families) > 1 else ""),
            sum(families.values()), reason,
        )
        for reason, families in by_reason.items()
    ]  # fmt: skip
