"""Finalized features: what every node of the cluster is sure to understand."""

from __future__ import annotations

from tidelog.journal import Decision
from tidelog.metadata.features import METADATA_VERSION, METADATA_VERSION_FEATURE
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records.cluster import FeatureLevelRecord


def decide_bootstrap(metadata: MetadataView) -> Decision[None]:
    """The first records of a new metadata log; nothing where there are some already."""
    if METADATA_VERSION_FEATURE in metadata.features:
        return Decision((), None)
    return Decision((FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=METADATA_VERSION),), None)
