"""Meshwright: plan, train, profile and mend hybrid-parallel LLM training.

The verbs of the command line are functions here: `meshwright.plan("job.toml")` returns what `meshwright plan --json`
prints. They are loaded when first used, so that importing the package costs nothing.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

VERBS = (
    "check", "memory", "plan", "predict", "why", "validate", "train", "parity", "diagnose", "compare", "rebalance",
    "tune", "report", "init",
)  # fmt: skip
"""The functions of the Python API."""

__all__ = ["VERBS", "__version__", *VERBS]


def __getattr__(name: str) -> Any:
    if name in VERBS:
        return getattr(importlib.import_module("meshwright.api"), name)
    raise AttributeError(f"module 'meshwright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *VERBS])
