"""What the habits of software change in predicted bytes, against counts by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright.files.plan import Plan
from meshwright.files.prediction import StageMemory
from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.predictor.memory import rank_memory

MakePlan = Callable[..., Plan]
DENSE = Architecture("dense", "llama", 8, 512, 8, 8, 64, 1536, 4096)
EXPERTS = replace(DENSE, experts=8, active_experts=2, ffn_hidden=512)
LATENT = replace(DENSE, latent=LatentAttention(64, 32, 16, 32, 96), head_dim=48)
SEQ = 256


def memory(make_plan: MakePlan, stack: str, arch: Architecture = DENSE, **layout: object) -> tuple[StageMemory, ...]:
    """The memory of each pipeline rank under a stack."""
    plan = make_plan(arch, 1, 8, SEQ, runnable_by="megatron", gpu="H100-SXM", **layout)
    return rank_memory(replace(plan.setup, stack=stack), plan.layout, plan.batch)


def parts(make_plan: MakePlan, stack: str, arch: Architecture = DENSE, **layout: object) -> dict[str, int]:
    """Bytes by kind of the first pipeline rank."""
    return dict(memory(make_plan, stack, arch, **layout)[0].parts)


def test_placeholders_are_one_gradient_of_each_shape_of_matrix(make_plan: MakePlan) -> None:
    """Two bytes a parameter of one layer; at the loss the head's as well (Transformer Engine's cached dummies)."""
    with_them, without = (parts(make_plan, stack) for stack in ("megatron-2024", "megatron-2023+no-dropout"))
    layer = 4 * 512 * 512 + 3 * 512 * 1536 + 2 * 512
    assert with_them["working"] - without.get("working", 0) == 2 * layer + 300 * 2**20
    assert with_them["logits"] - without["logits"] == 2 * 4096 * 512


def test_twice_the_micro_batches_less_one(make_plan: MakePlan) -> None:
    """Zero-bubble 2p keeps 2p - 1 micro-batches where 1F1B's first stage keeps p (arXiv:2401.10241, section 3)."""
    plain, twice = (memory(make_plan, f"zero-bubble{name}", pp=4)[0] for name in ("", "+2p"))
    assert (plain.in_flight, twice.in_flight) == (4, 7)


def test_spread_vocabulary_divides_embedding_and_head_over_all_ranks(make_plan: MakePlan) -> None:
    gathered = memory(make_plan, "vocabulary-parallel", pp=4)
    spread = memory(make_plan, "vocabulary-parallel+vocab-2", pp=4)
    weights = [rank.parts["weights"] for rank in spread]
    assert max(weights) - min(weights) <= 2 * 512 + 2  # the final norm
    assert sum(weights) == pytest.approx(sum(rank.parts["weights"] for rank in gathered), rel=1e-3)


@pytest.mark.parametrize(
    ("module", "arch", "saved"),
    [
        ("layernorm", DENSE, 8 * 2 * 2 * 512),  # two norms' results in half precision, eight layers
        ("core_attn", DENSE, 0),  # nothing, where attention is fused
        ("mla_up_proj", LATENT, 8 * 2 * 8 * (48 + 48 + 32)),  # queries, keys, values of eight heads
        ("moe_act", EXPERTS, 8 * 2 * 2 * 512),  # activated values of two experts a token
        ("mlp", DENSE, 8 * 2 * 3 * 1536),  # gate, up and product: all but the input of the network
    ],
)
def test_selective_recompute_of_one_module(make_plan: MakePlan, module: str, arch: Architecture, saved: int) -> None:
    none = parts(make_plan, "megatron-2025", arch, recompute="none")["activations"]
    some = parts(make_plan, f"megatron-2025+re-{module}", arch, recompute="selective")["activations"]
    assert none - some == saved * SEQ


def test_every_other_product_recomputed(make_plan: MakePlan) -> None:
    """A layer keeps its input, attention's result and log-sums, and of seven products the first, third, fifth, last."""
    kept = memory(make_plan, "torchtitan", recompute="selective")[0].units
    assert kept["attn"] == 8 * SEQ * (2 * (512 + 512 + 512 + 512) + 4 * 8)
    assert kept["ffn"] == 8 * SEQ * 2 * (1536 + 512)


def test_activations_in_cpu_memory(make_plan: MakePlan) -> None:
    here = memory(make_plan, "megatron-2025")[0].units
    away = memory(make_plan, "megatron-2025+away-25")[0].units
    assert away["attn"] == pytest.approx(0.75 * here["attn"], rel=1e-6)
    assert away["head"] == here["head"]


def test_weights_in_eight_bits_take_no_more_than_in_half_precision(make_plan: MakePlan) -> None:
    half, fp8, mxfp8 = (
        parts(make_plan, "megatron-bridge", precision=precision)["weights"] for precision in ("bf16", "fp8", "mxfp8")
    )
    assert fp8 == half  # by rows and by columns, one byte each
    assert mxfp8 == pytest.approx(half * (1 + 1 / 32), rel=1e-6)
    beside = parts(make_plan, "megatron-2023", precision="fp8")["weights"]
    assert beside == pytest.approx(1.5 * half, rel=1e-6)


def test_remainders_of_weights_take_half_a_master_copy(make_plan: MakePlan) -> None:
    whole, remainder = (parts(make_plan, f"megatron-2024{name}")["master"] for name in ("", "+remainders"))
    assert remainder * 2 == whole


def test_stored_attention_scores_after_korthikanti(make_plan: MakePlan) -> None:
    """5 · a · s² · b bytes a layer with dropout, 2 · a · s² · b without, and no log-sums (arXiv:2205.05198, eq. 1)."""
    flash, scores, dropped = (
        parts(make_plan, f"megatron-2024+{name}")["activations"] for name in ("flash", "scores", "scores+dropout")
    )
    masks = SEQ * 512 * (2 * 8 + 1)  # a byte a value, twice a layer and once after the embedding
    assert scores - flash == 8 * (2 * 8 * SEQ * SEQ - 4 * 8 * SEQ)
    assert dropped - flash == 8 * (5 * 8 * SEQ * SEQ - 4 * 8 * SEQ) + masks
