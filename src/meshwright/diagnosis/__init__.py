"""Floor 5: from a timeline to causes, costs and changes."""
