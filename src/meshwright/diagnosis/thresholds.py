"""When a difference between ranks counts. What is wasteful about a layout: `layout/thresholds.py`."""

SLOW = 1.10
"""A rank that computes this many times as long as its peers is slow; a spread below that is healthy."""

SLOW_BY_UNITS = 1.25
"""The same where a rank has no peer and its units are compared with the like units of other stages."""

PERSISTENT = 0.90
"""A rank is persistently slow when it is slow in at least this share of the steps."""

EXCESS = 0.02
"""A bubble beyond the schedule's own by at most this share of the step is charged to nobody."""

FRAGMENTED = 0.15
"""Memory that is reserved and free at the peak counts as fragmented from this share of it on."""

IDLE = 0.10
"""Idle time is looked into from this share of the window on: a percent or two is the usual cost of dispatching."""

EXPOSED = 0.03
"""Exposed communication is a finding from this share of the window on."""

IMPOSSIBLE = 1.05
"""A device that does more than this of what it did among fewer: the reading, not the device, is odd."""

POOR = 0.80
"""Scaling is looked into below this efficiency."""

LOW_USE = 0.10
"""Below this share of the dense peak something other than the model's shape holds the job back."""

USUAL_USE = 0.40
"""The share of the dense peak that well-run training of large models reaches: what lost time is counted against."""

UNEVEN = 1.20
"""Experts, or the work of a step's samples, are uneven from this ratio of the most to the mean on."""

REPLAY_ERROR = 0.05
"""A replay that misses the recorded step by more than this share is not used to predict what a change would do."""
