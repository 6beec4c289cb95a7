"""Floor 0: errors for people, quantities with units, and where a figure comes from."""
