"""The metrics of rot: how much was looked through, what is damaged, and what was repaired.

Kafka: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from tidelog.server.observe.metric_families import counter, gauges

if TYPE_CHECKING:
    from tidelog.server.observe.observed_node import ObservedNode


def about_damages(node: ObservedNode) -> Iterator[Metric]:
    """Of the logs of a node."""
    notes = node.broker.replication.damage_notes
    lost_count = notes.lost_count
    yield counter("tidelog_scrubbed_bytes", "Bytes of segments that were looked through for rot.", notes.scrubbed_bytes)
    yield counter("tidelog_damages_found", "Stretches of logs that were found damaged.", notes.found)
    yield counter("tidelog_damages_repaired", "Of those, the ones that another replica repaired.", notes.repaired)
    yield gauges(
        "tidelog_damages",
        "Stretches of logs that are damaged and refused to readers.",
        "state",
        [("repairable", notes.open_count - lost_count), ("lost", lost_count)],
    )
