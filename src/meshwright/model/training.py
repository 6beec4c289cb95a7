"""How a model is trained: what decides bytes a parameter and the optimizer's work."""

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
Optimizer = Literal["adamw", "adamw-8bit", "muon", "sgd"]
Task = Literal["pretrain", "sft", "lora"]


@dataclass(frozen=True, slots=True)
class Training:
    """The training recipe (table [training] of a job)."""

    task: Task = "pretrain"
    precision: Precision = "bf16"
    optimizer: Optimizer = "adamw"
    gradient_dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    lr: float = 3e-4
    lr_schedule: Literal["constant", "cosine", "linear", "wsd"] = "constant"
    lr_decay: float = 0.1  # wsd: share of the steps, at the end, in which the rate falls to 0
    warmup: int = 0
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0  # global gradient norm; 0 switches clipping off
    loss_scale: float | None = None  # fp16 only; None: dynamic
    lora_rank: int = 16  # task "lora": rank of the adapters
    lora_targets: Literal["attention", "all"] = "all"  # matrices that get one: of attention, or of feed-forward as well
    expert_imbalance: float = 1.0  # tokens of the fullest expert rank over the mean; 1: balanced
    steps: int = 20
    seed: int = 0
