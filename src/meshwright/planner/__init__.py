"""Floor 5: the space of layouts, their ranking, and why."""
