"""The controller: decides about brokers, topics, leaders and producer ids, over a replayed metadata log."""

from tidelog.controller.directory_assignments import ReplicaInDirectory, pieces_to_assign
from tidelog.controller.early_fencing import EarlyFence, Suspect, Suspicions
from tidelog.controller.elections import pieces_to_elect
from tidelog.controller.isr_changes import AlteredPartition, IsrChange, IsrMember, PartitionToAlter
from tidelog.controller.leaders import ElectionType
from tidelog.controller.log_transactions import LOG_TRANSACTIONS
from tidelog.controller.losses import ToldLoss
from tidelog.controller.lost_replicas import LostReplica
from tidelog.controller.partition_scan import PartitionScan
from tidelog.controller.pending_changes import leaves_pending_changes
from tidelog.controller.portions import in_portions
from tidelog.controller.producer_ids import PRODUCER_ID_BLOCK_SIZE
from tidelog.controller.sessions import BrokerSessions
from tidelog.controller.state import ControllerState
from tidelog.controller.values import (
    AlteredConfigs,
    BrokerChange,
    BrokerToRegister,
    ConfigChange,
    ConfigOperation,
    ConfigsToAlter,
    ControllerSettings,
    CreateTopicResult,
    DeletedTopic,
    ElectedLeader,
    FeatureToUpdate,
    GrownTopic,
    Heartbeat,
    HeartbeatReply,
    OngoingReassignment,
    PartitionToReassign,
    ProducerIdBlock,
    QuorumControllers,
    ReassignedPartition,
    TopicToCreate,
    TopicToDelete,
    TopicToGrow,
    UpdatedFeature,
    UpgradeType,
)
from tidelog.metadata.features import METADATA_VERSION, METADATA_VERSION_FEATURE, METADATA_VERSION_MIN

__all__ = [
    "LOG_TRANSACTIONS",
    "METADATA_VERSION",
    "METADATA_VERSION_FEATURE",
    "METADATA_VERSION_MIN",
    "PRODUCER_ID_BLOCK_SIZE",
    "AlteredConfigs",
    "AlteredPartition",
    "BrokerChange",
    "BrokerSessions",
    "BrokerToRegister",
    "ConfigChange",
    "ConfigOperation",
    "ConfigsToAlter",
    "ControllerSettings",
    "ControllerState",
    "CreateTopicResult",
    "DeletedTopic",
    "EarlyFence",
    "ElectedLeader",
    "ElectionType",
    "FeatureToUpdate",
    "GrownTopic",
    "Heartbeat",
    "HeartbeatReply",
    "IsrChange",
    "IsrMember",
    "LostReplica",
    "OngoingReassignment",
    "PartitionScan",
    "PartitionToAlter",
    "PartitionToReassign",
    "ProducerIdBlock",
    "QuorumControllers",
    "ReassignedPartition",
    "ReplicaInDirectory",
    "Suspect",
    "Suspicions",
    "ToldLoss",
    "TopicToCreate",
    "TopicToDelete",
    "TopicToGrow",
    "UpdatedFeature",
    "UpgradeType",
    "in_portions",
    "leaves_pending_changes",
    "pieces_to_assign",
    "pieces_to_elect",
]
