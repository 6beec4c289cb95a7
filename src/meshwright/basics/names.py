"""The nearest known name to one that is unknown."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest in spelling to `name`, or None when nothing is close."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[found[0]] if found else None
