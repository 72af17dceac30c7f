"""Features: what a node can work at. Which level is in force, the metadata says (`MetadataImage.features`)."""

from __future__ import annotations

from collections.abc import Mapping

METADATA_VERSION_FEATURE = "metadata.version"
METADATA_VERSION_MIN = 7
"""Kafka's 3.3-IV3: the first of its releases that were meant for use without ZooKeeper."""
METADATA_VERSION = 21
"""Kafka's 3.9-IV0: the records that are written here are those of that level."""

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION),
}
"""Each feature's lowest and highest level."""
