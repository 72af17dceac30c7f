"""The cluster's metadata: its records, its images, and the table of every setting."""

from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.image import (
    BrokerImage,
    ConfigResource,
    ControllerImage,
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
    "ControllerImage",
    "Endpoint",
    "MetadataDelta",
    "MetadataDraft",
    "MetadataImage",
    "MetadataView",
    "PartitionImage",
    "ResourceType",
    "TopicImage",
]
