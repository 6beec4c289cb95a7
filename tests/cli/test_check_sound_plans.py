"""`check` has nothing to say about the plans that the planner proposes: a rule never invents a problem."""

from pathlib import Path

import pytest

import meshwright
from meshwright.layout.alternatives import ALTERNATIVES

A100_40 = 'gpu = "A100-40GB-SXM"'
A100_80 = 'gpu = "A100-80GB-SXM"'
H100 = 'gpu = "H100-80GB-SXM"'
IB = 'inter_node = "ib-ndr"'
PCIE = 'gpu = "A100-40GB-PCIe"\ngpus_per_node = 4\nintra_node = "pcie4"\ninter_node = 12.5'
MOE = """\
layers = 24
hidden = 2048
heads = 16
ffn_hidden = 1408
vocab = 151936
experts = 60
active_experts = 4
"""

UNEVEN = "layers = 27\nhidden = 5120\nheads = 40\nvocab = 250880"

# model, cluster, devices, global batch, sequence, further tables, who must run it
JOBS = {
    "one node, plain": ('params = "1.2B"', A100_40, 8, 256, 2048, "", "any"),
    "our own trainer": ('params = "1B"', A100_40, 8, 64, 2048, "", "meshwright"),
    "7B on small cards": ('params = "7B"', A100_40, 8, 128, 4096, "", "any"),
    "7B over PCIe": ('params = "7B"', PCIE, 16, 128, 2048, "", "any"),
    "70B on many nodes": ('name = "llama-3-70b"', f"{H100}\n{IB}", 32, 512, 8192, "", "any"),
    "70B for Megatron": ('name = "llama-3-70b"', f"{H100}\n{IB}", 128, 1024, 4096, "", "megatron"),
    "70B for torchtitan": ('name = "llama-3-70b"', f"{H100}\n{IB}", 64, 256, 8192, "", "torchtitan"),
    "20B for DeepSpeed": ('params = "20B"', f"{A100_80}\n{IB}", 128, 1024, 2048, "", "deepspeed"),
    "experts": (MOE, f"{H100}\n{IB}", 32, 512, 4096, "", "any"),
    "long sequences": ('name = "llama-3-8b"', f"{H100}\n{IB}", 32, 8, 131072, "", "any"),
    "few samples": ('name = "llama-3-70b"', f"{A100_80}\n{IB}", 32, 16, 4096, "", "any"),
    "27 layers": (UNEVEN, f"{A100_40}\n{IB}", 16, 128, 2048, "", "any"),
    "tied, fp16": ('name = "gpt2-xl"', 'gpu = "V100-16GB-SXM"', 8, 64, 1024, '[training]\nprecision = "fp16"', "any"),
    "fp8": ('name = "llama-3-8b"', H100, 8, 128, 8192, '[training]\nprecision = "fp8"', "any"),
    "adapters": ('name = "llama-3-70b"', H100, 8, 64, 4096, '[training]\ntask = "lora"', "any"),
    "tight memory": ('params = "3B"', f"{A100_40}\nmemory_gib = 16", 8, 64, 4096, "", "any"),
}  # fmt: skip
WASTE = {
    *ALTERNATIVES,
    "heaviest-stage",
    "exchange-each-micro-batch",
    "whole-gradient",
    "whole-logits",
    "experts-uneven",
}


@pytest.mark.parametrize("name", JOBS)
def test_nothing_is_said_about_the_best_plan(name: str, tmp_path: Path) -> None:
    model, cluster, gpus, batch, length, tables, runner = JOBS[name]
    job, plan = tmp_path / "job.toml", tmp_path / "plan.toml"
    job.write_text(
        f"[model]\n{model}\n[cluster]\n{cluster}\ngpus = {gpus}\n[batch]\nglobal = {batch}\nseq_len = {length}\n"
        f"{tables}\n[search]\nrunnable_by = '{runner}'\n"
    )
    assert meshwright.check(job)["problems"] == []
    meshwright.plan(job, top=1, output=plan)
    answer = meshwright.check(plan)
    assert answer["problems"] == []
    assert not WASTE & {one["rule"] for one in answer["warnings"]}, answer["warnings"]
