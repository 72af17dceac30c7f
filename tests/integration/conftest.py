"""A cluster of real nodes for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster

PROMPT = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "4000",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
}
"""Times that make silence noticed sooner than by default, so that tests do not wait for it."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes of the test's own, all of them voters and brokers."""
    started = Cluster(tmp_path / "cluster", config=PROMPT)
    try:
        started.start()
        yield started
    finally:
        started.close()
