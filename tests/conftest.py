"""What holds for every test."""

import signal
from collections.abc import Iterator

import pytest

from meshwright.trainer.pool import Pool

# Started in the background (a CI runner, `&`), this process inherits an ignored Ctrl-C and would hand it on to the
# programs under test, which must be seen to end on one.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Ranks of the trainer that are started when first needed, and serve every test of a session."""
    with Pool() as started:
        yield started
