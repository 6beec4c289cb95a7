"""Model and hardware FLOPs utilisation, of predicted and of measured steps alike."""

from meshwright.basics.errors import InputError
from meshwright.cluster import catalogue
from meshwright.cluster.device import Device
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.proposal import Proposal
from meshwright.layout.recomputed import recomputed_units
from meshwright.model.flops import attention_flops_per_token, matmul_flops_per_token, step_model_flops
from meshwright.model.training import Precision
from meshwright.model.units import units_of
from meshwright.model.variants import variant_of
from meshwright.predictor.kernels import peak_flops
from meshwright.predictor.stacks import stack_of


def model_flops_utilisation(proposal: Proposal, batch: Batch, world: int, step_time_s: float) -> float | None:
    """MFU (Chowdhery et al. 2022): model FLOPs a second over the dense peak of `world` devices, 0 to 1; what counts as
    a model FLOP is said in `model/flops.py`. None where the peak in that precision is not known, or is guessed: a share
    of a guess says nothing of the device."""
    cluster, precision = proposal.cluster, proposal.training.precision
    kinds = [(part.gpus / cluster.gpus, part.device) for part in cluster.parts] or [(1.0, cluster.device)]
    mean = 0.0
    for share, device in kinds:
        peak = _peak(device, precision)
        if peak is None:
            return None
        mean += share * peak
    return step_model_flops(proposal.arch, batch.tokens, batch.seq_len) / (step_time_s * world * mean)


def _peak(device: Device, precision: Precision) -> float | None:
    """Dense FLOP/s of a device; None where it is not known, or guessed."""
    try:
        peak = peak_flops(device, precision)
        if peak.origin == "fitted":  # a fit says how fast the device is, not what it could be
            peak = peak_flops(catalogue.device(device.name), precision)
    except InputError:
        return None
    return None if peak.origin == "guessed" or peak.value <= 0 else peak.value


def recomputed_flops(setup: Setup, layout: Layout, batch: Batch) -> float:
    """FLOPs of a step that recompute repeats: a forward of each layer that runs again, or of the modules that the
    software's selective recompute names (the attention scores where it names none)."""
    arch = setup.proposal.arch
    if layout.recompute == "none":
        return 0.0
    again, modules = recomputed_units(layout), stack_of(setup).recomputes or ("core_attn",)
    total = 0.0
    for unit in units_of(arch):
        scores = attention_flops_per_token(arch, unit, batch.seq_len)
        if unit.name in again:
            total += matmul_flops_per_token(arch, unit) + scores
        elif layout.recompute == "selective":
            total += scores if "core_attn" in modules else 0.0
            experts = variant_of(arch, unit).experts
            if unit.kind == "ffn" and ("moe" if experts else "mlp") in modules:
                total += matmul_flops_per_token(arch, unit)
    return total * batch.tokens


def hardware_flops_utilisation(setup: Setup, layout: Layout, batch: Batch, mfu: float | None) -> float | None:
    """HFU (Korthikanti et al. 2022): as MFU, with what recompute repeats. None where MFU is."""
    if mfu is None:
        return None
    model = step_model_flops(setup.proposal.arch, batch.tokens, batch.seq_len)
    return mfu * (1 + recomputed_flops(setup, layout, batch) / model)
