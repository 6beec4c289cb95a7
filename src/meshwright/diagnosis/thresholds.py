"""When a difference counts: the limits a diagnosis uses, stated in one place."""

WORTH = 0.03
"""A change that saves less than this share of the step is not worth a finding."""

UNEVEN = 1.10
"""A pipeline rank whose compute is at least this many times the mean is uneven."""

SLOW = 1.10
"""A rank that computes this many times as long as its peers is slow; a spread below that is healthy."""

SLOW_BY_UNITS = 1.25
"""The same where a rank has no peer and its units are compared with the like units of other stages."""

PERSISTENT = 0.90
"""A rank is persistently slow when it is slow in at least this share of the steps."""

IDLE_SCHEDULE = 0.15
"""A schedule that idles this share of the step even with equal stages has too few micro-batches."""

EXCESS = 0.02
"""A bubble beyond the schedule's own by at most this share of the step is charged to nobody."""

ROOMY = 0.9
"""A plan predicted to need less than this share of the memory fits with high confidence."""
