"""What must hold before ranks are started, checked without importing torch: one clear line for each thing missing."""

import shutil
from collections.abc import Callable
from pathlib import Path

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.basics.quantities import MIB, gib
from meshwright.cluster.local import RANK_BYTES
from meshwright.cluster.machine import available_memory, usable_cores, visible_gpus
from meshwright.files.plan import Plan
from meshwright.trainer.environment import gpu_names, package_version
from meshwright.trainer.options import TrainOptions
from meshwright.trainer.supported_torch import refusal

DISK_BYTES = 100 * MIB


def check_packages() -> None:
    """Raise InputError unless torch is installed in the version that the trainer was written for."""
    found = package_version("torch")
    if found is None:
        raise bad_input("training needs PyTorch, which is not installed", legal="pip install 'meshwright[train]'")
    if refused := refusal(found):
        raise refused


def check_machine(plan: Plan, options: TrainOptions, progress: Callable[[str], None]) -> None:
    """Raise InputError when this machine cannot hold the plan's ranks; say what will merely be slow."""
    world, cluster = plan.layout.world, plan.setup.proposal.cluster
    emulated = all(phase.mode == "emulated" for phase in options.phases)
    if cluster.device.kind == "gpu" and not emulated:
        shown = len(visible_gpus() or gpu_names())
        if shown < world:
            raise bad_input(
                f"the plan needs {world} x {cluster.device.name}, this machine shows {shown} GPUs", field="cluster.gpu",
                value=repr(cluster.device.name), legal='gpu = "local" trains on what this machine has',
            )  # fmt: skip
        return
    check_memory(world)
    cores = usable_cores()
    if world > cores and any(phase.mode == "measured" for phase in options.phases):
        progress(f"note: {world} ranks share {cores} cores; wall time hides imbalance (the dilated clock shows it)")


def check_memory(world: int) -> None:
    """Raise InputError when this machine's free memory cannot hold that many CPU ranks, even without a model."""
    left, need = available_memory(), world * RANK_BYTES
    if left is not None and left < need:
        raise bad_input(
            f"{world} ranks need about {gib(need)} of memory before the model, {gib(left)} is free",
            field="world size", value=world, legal=f"at most {left // RANK_BYTES} ranks now",
        )  # fmt: skip


def check_disk(folder: Path) -> None:
    """Raise InputError when the nearest existing folder above the run has no room left."""
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise InputError((Complaint("", "", f"cannot be read ({error.strerror})", "", str(place)),)) from error
    if free < DISK_BYTES:
        raise bad_input(f"the disk is full: {free // MIB} MiB left, at least {DISK_BYTES // MIB} MiB are needed",
                        file=str(place))  # fmt: skip
