"""What a run of committed records changed: the next image, and for its subscribers what to look at again."""

from __future__ import annotations

from uuid import UUID

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.base.losses import LossId
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.image import MetadataImage, MetadataView, ResourceKey, ResourceType, TopicImage
from tidelog.metadata.records.acls import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from tidelog.metadata.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.metadata.records.cluster import ClientQuotaRecord, ConfigRecord, FeatureLevelRecord, NoOpRecord
from tidelog.metadata.records.controllers import RegisterControllerRecord
from tidelog.metadata.records.delegation_tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from tidelog.metadata.records.scram_credentials import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    scram_user_of,
)
from tidelog.metadata.records.topics import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.metadata.scram_credentials import ScramUser

RECOVERING = 1
"""The leader recovery state after an unclean election."""


class MetadataDelta:
    """The records between one image and the next.

    What it lists is what records were about: a subscriber compares `base` and the new image for what became of it.
    """

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.created_topics: dict[TopicId, str] = {}
        """Created since `base` and still there, with their names."""
        self.deleted_topics: dict[TopicId, TopicImage] = {}
        """In `base`, and no more."""
        self.changed_partitions: dict[TopicId, set[PartitionIndex]] = {}
        """New ones and changed ones, of topics that still are."""
        self.unclean_partitions: set[tuple[TopicId, PartitionIndex]] = set()
        """Taken over meanwhile by a replica that may lack committed records; of topics that may be gone by now."""
        self.changed_brokers: set[BrokerId] = set()
        """Registered, unregistered, fenced or unfenced."""
        self.changed_controllers: set[BrokerId] = set()
        """Registered."""
        self.changed_configs: set[ResourceKey] = set()
        """Whose settings changed; a topic that was deleted takes its settings along without being listed."""
        self.changed_losses: set[LossId] = set()
        """Entries of the account that are new, changed, or forgotten."""
        self.changed_acls: set[UUID] = set()
        """Access rules that came, and those that went."""
        self.changed_scram_users: set[ScramUser] = set()
        """Whose credentials came, changed or went."""
        self.changed_delegation_tokens: set[str] = set()
        """Tokens that came, count until another time, or went."""
        self.are_client_quotas_changed = False
        self.are_features_changed = False
        self._draft = MetadataDraft(base)

    @property
    def view(self) -> MetadataView:
        """The metadata with all that was replayed so far."""
        return self._draft

    def replay(self, record: object) -> None:
        """Take in the next committed record."""
        self._draft.apply(record)
        match record:
            case PartitionChangeRecord() | PartitionRecord():
                changed = self.changed_partitions.setdefault(TopicId(record.topic_id), set())
                changed.add(PartitionIndex(record.partition_id))
                if record.leader_recovery_state == RECOVERING:
                    self.unclean_partitions.add((TopicId(record.topic_id), PartitionIndex(record.partition_id)))
            case TopicRecord():
                self.created_topics[TopicId(record.topic_id)] = record.name
            case RemoveTopicRecord():
                self._note_removal(TopicId(record.topic_id))
            case ConfigRecord():
                self.changed_configs.add(ResourceKey(ResourceType(record.resource_type), record.resource_name))
            case RegisterBrokerRecord() | BrokerRegistrationChangeRecord() | UnregisterBrokerRecord():
                self.changed_brokers.add(BrokerId(record.broker_id))
            case RegisterControllerRecord():
                self.changed_controllers.add(BrokerId(record.controller_id))
            case NoOpRecord():
                named = [(one.topic_id, one.partition_index, one.leader_epoch) for one in record.losses]
                named += [(one.topic_id, one.partition_index, one.leader_epoch) for one in record.forgotten_losses]
                for topic_id, index, epoch in named:
                    self.changed_losses.add(LossId(TopicId(topic_id), PartitionIndex(index), LeaderEpoch(epoch)))
            case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                self.changed_acls.add(record.id)
            case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                self.changed_scram_users.add(scram_user_of(record))
            case DelegationTokenRecord() | RemoveDelegationTokenRecord():
                self.changed_delegation_tokens.add(record.token_id)
            case ClientQuotaRecord():
                self.are_client_quotas_changed = True
            case FeatureLevelRecord():
                self.are_features_changed = True
            case _:
                pass

    def apply(self, last_offset: Offset) -> MetadataImage:
        """The next image.

        Args:
            last_offset: inclusive; the offset of the last record, control records counted.
        """
        return self._draft.image(last_offset)

    def _note_removal(self, topic_id: TopicId) -> None:
        if self.created_topics.pop(topic_id, None) is None:
            self.deleted_topics[topic_id] = self.base.topics_by_id[topic_id]
        self.changed_partitions.pop(topic_id, None)
