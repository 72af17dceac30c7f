"""The cluster's metadata: its records, its images, and the table of every setting."""

from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.image import (
    BrokerImage,
    ControllerImage,
    MetadataImage,
    MetadataView,
    PartitionImage,
    RegisteredEndpoint,
    ResourceKey,
    ResourceType,
    TopicImage,
)

__all__ = [
    "BrokerImage",
    "ControllerImage",
    "MetadataDelta",
    "MetadataDraft",
    "MetadataImage",
    "MetadataView",
    "PartitionImage",
    "RegisteredEndpoint",
    "ResourceKey",
    "ResourceType",
    "TopicImage",
]
