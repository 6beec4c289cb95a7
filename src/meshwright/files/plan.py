"""A plan: a setup with a complete layout, and its prediction. `plan.toml` is read and written in `plan_toml.py`."""

from dataclasses import dataclass

from meshwright.files.prediction import Prediction
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout


@dataclass(frozen=True, slots=True)
class Plan:
    """One runnable plan."""

    setup: Setup
    layout: Layout
    batch: Batch
    prediction: Prediction | None = None
