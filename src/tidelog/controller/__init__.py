"""The controller: decides about brokers, topics, leaders and producer ids, over a replayed metadata log."""

from tidelog.controller.producer_ids import PRODUCER_ID_BLOCK_SIZE
from tidelog.controller.state import ControllerState
from tidelog.controller.values import (
    AlteredConfigs,
    BrokerChange,
    BrokerToRegister,
    ConfigChange,
    ConfigOperation,
    ConfigsToAlter,
    ControllerSettings,
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    NewTopic,
    ProducerIdBlock,
    TopicToDelete,
    TopicToGrow,
)
from tidelog.metadata.features import METADATA_VERSION, METADATA_VERSION_FEATURE, METADATA_VERSION_MIN

__all__ = [
    "METADATA_VERSION",
    "METADATA_VERSION_FEATURE",
    "METADATA_VERSION_MIN",
    "PRODUCER_ID_BLOCK_SIZE",
    "AlteredConfigs",
    "BrokerChange",
    "BrokerToRegister",
    "ConfigChange",
    "ConfigOperation",
    "ConfigsToAlter",
    "ControllerSettings",
    "ControllerState",
    "CreatedTopic",
    "DeletedTopic",
    "GrownTopic",
    "NewTopic",
    "ProducerIdBlock",
    "TopicToDelete",
    "TopicToGrow",
]
