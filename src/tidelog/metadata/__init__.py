"""The cluster's metadata: its records, its images, and the table of every setting."""

from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.image import (
    BrokerImage,
    ConfigResource,
    Endpoint,
    MetadataImage,
    MetadataView,
    PartitionImage,
    ResourceType,
    TopicImage,
)

__all__ = [
    "BrokerImage",
    "ConfigResource",
    "Endpoint",
    "MetadataDelta",
    "MetadataDraft",
    "MetadataImage",
    "MetadataView",
    "PartitionImage",
    "ResourceType",
    "TopicImage",
]
