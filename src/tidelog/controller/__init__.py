"""The controller: decides about brokers, topics, leaders and producer ids, over a replayed metadata log."""

from tidelog.controller.producer_ids import PRODUCER_ID_BLOCK_SIZE
from tidelog.controller.state import ControllerState
from tidelog.controller.values import (
    BrokerChange,
    BrokerToRegister,
    ControllerSettings,
    CreatedTopic,
    DeletedTopic,
    LeadershipChange,
    NewTopic,
    ProducerIdBlock,
    TopicToDelete,
)
from tidelog.metadata.features import METADATA_VERSION, METADATA_VERSION_FEATURE, METADATA_VERSION_MIN

__all__ = [
    "METADATA_VERSION",
    "METADATA_VERSION_FEATURE",
    "METADATA_VERSION_MIN",
    "PRODUCER_ID_BLOCK_SIZE",
    "BrokerChange",
    "BrokerToRegister",
    "ControllerSettings",
    "ControllerState",
    "CreatedTopic",
    "DeletedTopic",
    "LeadershipChange",
    "NewTopic",
    "ProducerIdBlock",
    "TopicToDelete",
]
