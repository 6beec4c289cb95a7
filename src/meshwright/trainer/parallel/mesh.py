"""The mesh: the one place where ranks get their coordinates and process groups are made."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from meshwright.layout.degrees import Layout
from meshwright.trainer.parallel.groups import Group

AXES = ("pp", "dp", "cp", "tp")  # outermost first: tensor ranks are neighbours, where links are fastest


@dataclass(frozen=True)
class Mesh:
    """This rank's groups. `ends` joins the pipeline ranks of the embedding and of the output matrix.

    The replicas of `dp` are cut into groups that share one set of shards (`shard`); the ranks that hold the same
    shard are `copies`. Without ZeRO every replica holds everything: `shard` is a group of one and `copies` is `dp`.
    """

    device_mesh: DeviceMesh
    world: Group
    pp: Group
    dp: Group
    tp: Group
    ends: Group
    shard: Group
    copies: Group
    states: DeviceMesh | None  # [copies, shard], or the one of them that has ranks; None where each is alone

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.world.rank

    def coordinates(self) -> str:
        """For messages: `pp 1, dp 0, tp 1`."""
        return f"pp {self.pp.rank}, dp {self.dp.rank}, tp {self.tp.rank}"


def build_mesh(layout: Layout, device_type: str) -> Mesh:
    """Make every group of a layout; collective over the default process group, whose size is the layout's world.

    Every axis exists, of size 1 where the layout does not use it.
    """
    shape = (layout.pp, layout.dp, layout.cp, layout.tp)
    device_mesh = init_device_mesh(device_type, shape, mesh_dim_names=AXES)
    ranks = device_mesh.mesh  # [pp, dp, cp, tp] global ranks
    pp, dp, cp, tp = device_mesh.get_coordinate() or [0, 0, 0, 0]
    me = dist.get_rank()

    def group(axis: str, members: list[int]) -> Group:
        handle = device_mesh.get_group(axis) if len(members) > 1 else None
        return Group(handle, tuple(members), members.index(me))

    replicas = group("dp", ranks[pp, :, cp, tp].tolist())
    shard, copies = _shards(layout, ranks, replicas)
    return Mesh(
        device_mesh=device_mesh,
        world=Group(dist.group.WORLD if layout.world > 1 else None, tuple(range(layout.world)), me),
        pp=group("pp", ranks[:, dp, cp, tp].tolist()),
        dp=replicas,
        tp=group("tp", ranks[pp, dp, cp, :].tolist()),
        ends=_ends(layout, ranks, me),
        shard=shard,
        copies=copies,
        states=join_groups(copies, shard, ("copies", "shard"), device_type) if copies.size * shard.size > 1 else None,
    )


def join_groups(outer: Group, inner: Group, names: tuple[str, str], device_type: str) -> DeviceMesh:
    """The mesh of two of this rank's groups, [outer, inner], of their existing communicators; a group of one is left
    out. All ranks of `outer` have the same ranks of `inner` beside them."""
    groups = [(group, name) for group, name in zip((outer, inner), names, strict=True) if group.size > 1]
    handles = [group.handle for group, _ in groups]
    if len(groups) < 2:
        return DeviceMesh.from_group(handles[0], device_type, mesh_dim_names=(groups[0][1],))  # type: ignore[arg-type]
    me = inner.ranks[inner.rank]
    grid = torch.tensor([[rank - me + other for rank in inner.ranks] for other in outer.ranks])
    return DeviceMesh.from_group(handles, device_type, grid, mesh_dim_names=names)  # type: ignore[arg-type]


def _shards(layout: Layout, ranks: Tensor, replicas: Group) -> tuple[Group, Group]:
    """The groups `shard` and `copies` of this rank. Neighbours share shards: gathering is most of the traffic."""
    me, size = replicas.ranks[replicas.rank], replicas.size
    alone = Group(None, (me,), 0)
    together = (layout.shard_group or size) if layout.zero else 1
    if together == 1:
        return alone, replicas
    if together == size:
        return replicas, alone
    lines = ranks.movedim(1, -1).flatten(0, -2)  # the replicas of each (pp, cp, tp)
    blocks = lines.reshape(len(lines), -1, together)  # [line, copy, shard]
    shard = _mine(blocks.flatten(0, 1).tolist(), me)
    return shard, _mine(blocks.transpose(1, 2).flatten(0, 1).tolist(), me)


def _ends(layout: Layout, ranks: Tensor, me: int) -> Group:
    """The group of the first and the last stage's rank; a group of one for ranks that hold neither, or both."""
    first, last = layout.placement[0], layout.placement[-1]
    if first == last:
        return Group(None, (me,), 0)
    replicas = ranks.flatten(1).T.tolist()  # pipeline ranks of each (dp, cp, tp)
    return _mine([sorted((replica[first], replica[last])) for replica in replicas], me)


def _mine(groups: Sequence[list[int]], me: int) -> Group:
    """Make all of these groups, which every rank must do; the one that this rank is in, or a group of one."""
    mine = Group(None, (me,), 0)
    for members in groups:
        handle = dist.new_group(members)
        if me in members:
            mine = Group(handle, tuple(members), members.index(me))
    return mine
