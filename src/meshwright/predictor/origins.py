"""Where the constants behind one prediction come from: every one that its plan makes use of, and no other."""

from collections.abc import Mapping

from meshwright.basics.figures import Constant, Origin
from meshwright.basics.quantities import MIB
from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.predictor import constants
from meshwright.predictor.compute import same_conditions, share_of
from meshwright.predictor.kernels import attention_efficiency, gemm_efficiency, peak_flops
from meshwright.predictor.running_out import quantile, spread_of
from meshwright.predictor.stacks import stack_of


def origins_of(setup: Setup, layout: Layout, batch: Batch, measured: MeasuredUnits | None) -> dict[str, Origin]:
    """Origin of each constant, by name. Measured unit times stand beside the constants that fill their gaps."""
    used = {**_of_the_device(setup), **_of_the_model(setup), **_of_the_links(setup, layout)}
    origins = {name: constant.origin for name, constant in used.items()}
    if measured is not None:
        held = same_conditions(measured, share_of(layout, batch))
        origins["unit_times"] = "measured" if held else "fitted"
        if "selective" in (layout.recompute, measured.recompute):
            origins["selective_share"] = constants.SELECTIVE_SHARE.origin
        if measured.optimizer_s > 0:
            origins["optimizer"] = "measured" if held else "fitted"
    return origins


def _of_the_device(setup: Setup) -> Mapping[str, Constant]:
    device, precision = setup.proposal.cluster.device, setup.proposal.training.precision
    forward, backward = attention_efficiency(device)
    quantised = constants.QUANTISED_EFFICIENCY.get(precision)
    return {
        "peak_flops": peak_flops(device, precision),
        "memory_bandwidth": device.memory_bandwidth,
        "launch": device.launch_s,
        "kernel_gap": constants.KERNEL_GAP_S[device.kind],
        **_of_the_memory(setup),
        "gemm_efficiency": gemm_efficiency(device),
        "gemm_depth": constants.DEPTH_HALF,
        "attention_efficiency": forward,
        "attention_backward_efficiency": backward,
        "attention_backward_factor": constants.ATTENTION_BACKWARD_FACTOR,
        "memory_efficiency": constants.MEMORY_EFFICIENCY,
        "step_host": constants.STEP_HOST_S,
        **({"quantised_efficiency": quantised} if quantised else {}),
    }


def _of_the_memory(setup: Setup) -> Mapping[str, Constant]:
    """The allocator's reserve and the error of what is allocated, as shares; the context, in bytes."""
    spread, stack = spread_of(setup), stack_of(setup)
    error = Constant(spread.error, spread.origin, spread.source)
    if setup.proposal.cluster.device.kind == "cpu":
        return {"memory_error": error, "context": setup.proposal.cluster.device.reserved_bytes}
    return {
        "memory_error": error,
        "reserve": Constant(quantile(spread, 0.5) - 1, spread.origin, spread.source),
        "context": Constant(stack.context_mib * MIB, "guessed", stack.source),
    }


def _of_the_model(setup: Setup) -> Mapping[str, Constant]:
    used = {
        "forward_kernels": constants.FORWARD_KERNELS["attn"],
        "backward_kernels": constants.BACKWARD_KERNELS_FACTOR,
    }
    if setup.proposal.arch.experts:
        used["expert_kernels"] = constants.EXPERT_KERNELS
    return used


def _of_the_links(setup: Setup, layout: Layout) -> Mapping[str, Constant]:
    cluster = setup.proposal.cluster
    if layout.world == 1:
        return {}
    used = {
        "intra_node_rate": cluster.intra.bytes_per_s,
        "intra_node_latency": cluster.intra.latency_s,
        "collective_efficiency": constants.COLLECTIVE_EFFICIENCY["intra"],
        "collective_launch": constants.COLLECTIVE_LAUNCH_S,
        "contention": constants.CONTENTION,
    }
    if cluster.device.kind == "gpu":
        stack = stack_of(setup)
        used["communicator_buffers"] = Constant(stack.communicator_mib * MIB, "guessed", stack.source)
    if not cluster.one_domain:
        used |= {
            "inter_node_rate": cluster.inter.bytes_per_s,
            "inter_node_latency": cluster.inter.latency_s,
            "inter_node_efficiency": constants.COLLECTIVE_EFFICIENCY["inter"],
        }
    return used
