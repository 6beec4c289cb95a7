"""Layouts by what they have in common: degrees, then features and batch, then the ZeRO stage."""

from dataclasses import dataclass, field, replace

from meshwright.layout.degrees import Recompute, Schedule, degrees_text
from meshwright.predictor.compute import Share


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

    @property
    def degrees(self) -> tuple[int, ...]:
        """Those that a plan is known by."""
        return self.dp, self.tp, self.pp, self.cp, self.ep

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
    inside: tuple[int, ...]  # ZeRO stages that run with shards inside a node as well (HSDP), where replicas span nodes
    placement: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """All groups of one set of degrees: each feature with each of its batches, (micro-batch, micro-batches), large
    micro-batches first. Families of the same kind hold the same `features` and `batches` objects."""

    structure: Structure
    inside: Structure | None  # the same with shards inside a node, where replicas lie on more
    features: tuple[Feature, ...]
    batches: tuple[tuple[tuple[int, int], ...], ...]  # by feature

    def group(self, feature: int, batch: int) -> Group:
        """One of its groups."""
        of, (micro_batch, micro_batches) = self.features[feature], self.batches[feature][batch]
        return Group(
            self.structure, micro_batch, micro_batches, of.recompute, of.schedule, of.vpp, of.zeros, of.placement
        )

    def groups(self, feature: int, batch: int) -> tuple[Group, ...]:
        """That group, and the same with shards inside a node where there is one."""
        whole, inside = self.group(feature, batch), self.features[feature].inside
        if self.inside is None or not inside:
            return (whole,)
        return whole, replace(whole, structure=self.inside, zeros=inside)
