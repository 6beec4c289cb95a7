"""When a difference between ranks counts. What is wasteful about a layout: `layout/thresholds.py`."""

SLOW = 1.10
"""A rank that computes this many times as long as its peers is slow; a spread below that is healthy."""

SLOW_BY_UNITS = 1.25
"""The same where a rank has no peer and its units are compared with the like units of other stages."""

PERSISTENT = 0.90
"""A rank is persistently slow when it is slow in at least this share of the steps."""

EXCESS = 0.02
"""A bubble beyond the schedule's own by at most this share of the step is charged to nobody."""
