"""Floor 1: what a transformer is made of: units, parameters, FLOPs, activations."""
