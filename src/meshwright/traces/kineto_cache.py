"""Large traces are read once: what was kept of them lies in a cache, and comes from there the next time.

Where: `$MESHWRIGHT_CACHE`, else `$XDG_CACHE_HOME/meshwright/traces`, else `~/.cache/meshwright/traces`. Key: the
file's full path, size and time of change, and the number of the reader's format. Small files are not cached; the
oldest entries go when all together are over 4 GiB. `--no-cache` neither reads nor writes it.
"""

import hashlib
import os
from pathlib import Path

from meshwright.traces.kineto_part import Part, load_part, save_part

_FORMAT = 1  # to be raised whenever the reader keeps something else
_SMALLEST = 32 << 20
_MOST = 4 << 30


def folder() -> Path:
    """Where the cache lies."""
    if given := os.environ.get("MESHWRIGHT_CACHE"):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "meshwright" / "traces"


def entry(path: Path) -> Path | None:
    """The cache's file for a trace; None for one that is small or not there."""
    try:
        stat = path.stat()
        if stat.st_size < _SMALLEST:
            return None
        key = f"{_FORMAT}\0{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
        return folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.npz"
    except (OSError, RuntimeError, ValueError):
        return None


def cached(path: Path) -> Part | None:
    """What was kept of a trace when it was last read, unless it has changed since."""
    kept = entry(path)
    return load_part(kept) if kept is not None else None


def keep(path: Path, part: Part) -> None:
    """Put a trace's part in the cache. A cache that cannot be written is no error: the next run reads again."""
    target = entry(path)
    if target is None:
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        save_part(part, target)
        held = sorted(target.parent.glob("*.npz"), key=lambda file: file.stat().st_mtime, reverse=True)
        total = 0
        for file in held:
            total += file.stat().st_size
            if total > _MOST and file != target:
                file.unlink(missing_ok=True)
    except OSError:
        return
