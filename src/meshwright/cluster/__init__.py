"""Floor 1: devices, links and how they are wired."""
