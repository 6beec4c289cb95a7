"""What a job may state as fact in its table [claims]: the one list of keys. The rules examine each statement."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One key of [claims]: a yes-or-no statement, or a text when `text` is set."""

    meaning: str
    text: bool = False
    legal: tuple[str, ...] = ()  # legal texts; empty: any


CLAIMS: Mapping[str, Claim] = {
    "model_exceeds_one_gpu": Claim("the model with its training states does not fit in one GPU's memory"),
    "layer_exceeds_one_gpu": Claim("a single layer does not fit in one GPU's memory"),
    "dataset_must_fit_gpu": Claim("the data set has to fit in GPU memory"),
    "mixed_precision_shrinks_states": Claim("mixed precision makes weights, gradients and optimizer states smaller"),
    "within_stage": Claim(
        "how the devices of one stage share its layers", text=True, legal=("attention | feed-forward", "tensor")
    ),
    "profilers": Claim("the profilers the author means to use, separated by commas", text=True),
}  # fmt: skip
"""Values are kept as text: "true", "false" or the text itself."""
