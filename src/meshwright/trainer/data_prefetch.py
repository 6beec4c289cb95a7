"""Batches read ahead in the background, and how long a step waited for its own."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
_LOOK_S = 0.1


class Ahead(Generic[T]):
    """Gives what a background thread makes of each step, in order; see `reading_ahead`."""

    def __init__(self, queue: "Queue[tuple[int, T | None, BaseException | None]]", thread: Thread) -> None:
        self._queue, self._thread = queue, thread

    def take(self, step: int) -> tuple[T, float]:
        """What was made of `step`, the next in order, and the seconds that were spent waiting for it.

        Raises what making it raised.
        """
        start = time.perf_counter()
        while True:
            try:
                number, value, error = self._queue.get(timeout=_LOOK_S)
                break
            except Empty:
                if not self._thread.is_alive() and self._queue.empty():
                    raise LookupError(f"step {step} is not among those that were to be read") from None
        if error is not None:
            raise error
        if number != step or value is None:
            raise LookupError(f"step {step} was asked for when {number} was next")
        return value, time.perf_counter() - start


@contextmanager
def reading_ahead(make: Callable[[int], T], steps: Sequence[int], depth: int = 2) -> Iterator[Ahead[T]]:
    """Calls `make` of one step after the other in a background thread that is at most `depth` steps ahead."""
    queue: Queue[tuple[int, T | None, BaseException | None]] = Queue(depth)
    stopped = Event()

    def put(item: tuple[int, T | None, BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                queue.put(item, timeout=_LOOK_S)
            except Full:
                continue
            return True
        return False

    def work() -> None:
        for step in steps:
            try:
                item: tuple[int, T | None, BaseException | None] = (step, make(step), None)
            except BaseException as error:
                item = (step, None, error)
            if not put(item) or item[2] is not None:
                return

    thread = Thread(target=work, name="read ahead", daemon=True)
    thread.start()
    try:
        yield Ahead(queue, thread)
    finally:
        stopped.set()
        thread.join(5.0)
