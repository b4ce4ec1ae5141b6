"""What the tests of the core share: a scheduler core on a bench, in three states of furnishing."""

from __future__ import annotations

import pytest
from hypothesis import settings

from scaler_cluster.core.scheduler import invariants
from scaler_cluster.testing.bench import SchedulerBench

# A machine that others use as well is sometimes slow; that is no failure of what is tested.
settings.register_profile("scaler", deadline=None)
settings.load_profile("scaler")


@pytest.fixture
def bench():
    """A scheduler that nobody has spoken to."""
    made = SchedulerBench()
    yield made
    invariants.check(made.core)


@pytest.fixture
def one(bench):
    """A scheduler with client C1 (session 1), supervisor S1 and worker W1."""
    bench.supervisor()
    bench.client()
    bench.worker()
    return bench


@pytest.fixture
def two(one):
    """As ``one``, and worker W2 of the same supervisor."""
    one.worker(b"W2")
    return one
