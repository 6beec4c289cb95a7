"""What the trainer's tests share."""

from collections.abc import Iterator

import pytest

from meshwright.trainer.pool import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Ranks that are started when first needed, and serve every test of a session."""
    with Pool() as started:
        yield started
