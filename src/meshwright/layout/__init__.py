"""Floor 2: degrees, batch arithmetic, partitions, schedules and the rules that all verbs share."""
