"""Meshwright: plan, train, profile and mend hybrid-parallel LLM training."""

__version__ = "0.1.0"
