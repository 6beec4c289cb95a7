"""Floor 6: the loop: measure, rebalance, tune."""
