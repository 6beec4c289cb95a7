"""The space of layouts: every combination that the fixed parts, the rules and the chosen framework leave open.

Cheap by construction: rules are asked once for each set of degrees and frameworks once for each set of features;
micro-batches, schedules and ZeRO stages are then counted out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from meshwright.files.setup import Setup
from meshwright.layout.batch import divisors
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.rules import LEGALITY
from meshwright.planner.features import NOT_SEARCHED, Parts, sequence_parallel, with_fixed
from meshwright.planner.groups import Family, Feature, Group, Structure
from meshwright.planner.refusals import Refusals

__all__ = [
    "NOT_SEARCHED", "Family", "Feature", "Group", "Rejection", "Space", "Structure", "degrees", "space", "with_fixed",
]  # fmt: skip


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
            group
            for family in self.families
            for feature, batches in enumerate(family.batches)
            for batch in range(len(batches))
            for group in family.groups(feature, batch)
        )

    @property
    def size(self) -> int:
        """Number of layouts."""
        return sum(
            (len(of.zeros) + (len(of.inside) if family.inside else 0)) * len(batches)
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
                    ranks = dp * cp * tp
                    for etp in _free(wanted.etp, sorted({tp, 1}, reverse=True) if arch.experts else (1,)):
                        spread = [ep for ep in divisors(arch.experts or 1) if ranks % (ep * etp) == 0]
                        for ep in _free(wanted.ep, spread):
                            yield Structure(dp, tp, pp, cp, ep, etp, False, wanted.shard_group)


def _inside(proposal: Proposal, s: Structure) -> Structure | None:
    """The degrees with shards inside a node (HSDP), where replicas lie on several and the job leaves that open."""
    cluster, replicas = proposal.cluster, s.dp * s.cp
    inside = gcd(max(1, cluster.joined // s.tp), replicas)
    free = proposal.wanted.shard_group is None and proposal.wanted.zero != 0
    return replace(s, shard_group=inside) if free and not cluster.one_domain and 1 < inside < replicas else None


def _with(wanted: Wanted, structure: Structure) -> Wanted:
    return replace(
        wanted, dp=structure.dp, tp=structure.tp, pp=structure.pp, cp=structure.cp, ep=structure.ep,
        etp=structure.etp, sp=wanted.sp,
    )  # fmt: skip


def space(setup: Setup, refuse: Refusals | None = None) -> Space:
    """Enumerate every layout that the rules allow and the named framework can run, and count the rest with reasons.
    `refuse` remembers what the framework refused in another space of the same job."""
    proposal = setup.proposal
    families: list[Family] = []
    rules: dict[tuple[str, str], int] = {}
    refused: dict[tuple[str, str], int] = {}
    parts = Parts(setup, refuse or Refusals(setup))
    for bare in degrees(proposal):
        wanted = replace(_with(proposal.wanted, bare), micro_batch=None, micro_batches=None)
        judged = replace(proposal, wanted=wanted)
        broken = next((rule for rule in LEGALITY if not rule.holds(judged)), None)
        if broken is not None:
            rules[bare.text(), f"[{broken.name}] {broken.explain(judged).message}"] = 1
            continue
        structure = replace(bare, sp=sequence_parallel(setup, bare, parts.refuse))
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
            legal = parts.legal_of(structure.dp, structure.pp, features)
            families.append(Family(structure, _inside(proposal, structure), features, legal))
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
