"""Floor 3: readers that turn recorded traces into Timelines."""
