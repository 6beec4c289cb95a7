"""Model FLOPs utilisation, of predicted and of measured steps alike."""

from meshwright.basics.errors import InputError
from meshwright.cluster import catalogue
from meshwright.layout.batch import Batch
from meshwright.layout.proposal import Proposal
from meshwright.model.flops import step_model_flops
from meshwright.predictor.kernels import peak_flops


def model_flops_utilisation(proposal: Proposal, batch: Batch, world: int, step_time_s: float) -> float | None:
    """MFU (Chowdhery et al. 2022): model FLOPs a second over the dense peak of `world` devices, 0 to 1; what counts as
    a model FLOP is said in `model/flops.py`. None where the peak in that precision is not known, or is guessed: a share
    of a guess says nothing of the device."""
    device = proposal.cluster.device
    try:
        peak = peak_flops(device, proposal.training.precision)
        if peak.origin == "fitted":  # a fit says how fast the device is, not what it could be
            peak = peak_flops(catalogue.device(device.name), proposal.training.precision)
    except InputError:
        return None
    if peak.origin == "guessed" or peak.value <= 0:
        return None
    return step_model_flops(proposal.arch, batch.tokens, batch.seq_len) / (step_time_s * world * peak.value)
