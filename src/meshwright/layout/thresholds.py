"""When something counts as wasteful: the one set of limits behind `check`, the planner's notes and a diagnosis."""

WORTH = 0.03
"""A change that saves less than this share of the step is not worth a word."""

IDLE_SCHEDULE = 0.15
"""A schedule that idles this share of the step even with equal stages has too few micro-batches."""

UNEVEN = 1.10
"""A pipeline rank with this many times the work that it could have (best partition, or mean of the ranks) is uneven."""

HEAVY = 1.20
"""A pipeline rank with this many times the mean parameters is heavy."""

CROWDED = 0.6
"""Share of a device's memory from which a heavy rank matters."""

ROOMY = 0.9
"""A plan predicted to need less than this share of the memory fits with high confidence."""

COMFORT = 0.85
"""The same where the need is estimated without a prediction: equal stages, no reserve of the allocator."""

DOMINANT = 0.9
"""Share of all parameters in embedding and head from which no partition of a pipeline means much."""
