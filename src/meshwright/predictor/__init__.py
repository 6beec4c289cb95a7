"""Floor 4: what a plan will cost: time, memory, and the simulated pipeline."""
