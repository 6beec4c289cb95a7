"""The mesh: the one place where ranks get their coordinates and process groups are made."""

from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from meshwright.layout.degrees import Layout
from meshwright.trainer.parallel.groups import Group

AXES = ("pp", "dp", "cp", "tp")  # outermost first: tensor ranks are neighbours, where links are fastest


@dataclass(frozen=True)
class Mesh:
    """This rank's groups. `ends` joins the pipeline ranks of the embedding and of the output matrix."""

    device_mesh: DeviceMesh
    world: Group
    pp: Group
    dp: Group
    tp: Group
    ends: Group

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

    return Mesh(
        device_mesh=device_mesh,
        world=Group(dist.group.WORLD if layout.world > 1 else None, tuple(range(layout.world)), me),
        pp=group("pp", ranks[:, dp, cp, tp].tolist()),
        dp=group("dp", ranks[pp, :, cp, tp].tolist()),
        tp=group("tp", ranks[pp, dp, cp, :].tolist()),
        ends=_ends(layout, device_mesh, me),
    )


def _ends(layout: Layout, device_mesh: DeviceMesh, me: int) -> Group:
    """The group of the first and the last stage's rank; a group of one for ranks that hold neither, or both."""
    first, last = layout.placement[0], layout.placement[-1]
    mine = Group(None, (me,), 0)
    if first == last:
        return mine
    for replica in device_mesh.mesh.flatten(1).T.tolist():  # pipeline ranks of each (dp, cp, tp)
        members = sorted((replica[first], replica[last]))
        handle = dist.new_group(members)
        if me in members:
            mine = Group(handle, tuple(members), members.index(me))
    return mine
