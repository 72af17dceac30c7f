"""The controller's journal: what the metadata log says, and what may be decided on top of it.

Kafka: `QuorumController`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset, TopicId, TopicPartition
from tidelog.base.losses import LossId
from tidelog.base.ports import Rng
from tidelog.base.principals import Requester
from tidelog.controller import (
    acls,
    balancing,
    brokers,
    client_quotas,
    configs,
    controllers,
    delegation_tokens,
    directory_assignments,
    early_fencing,
    elections,
    features,
    heartbeats,
    isr_changes,
    losses,
    partitions,
    pending_changes,
    producer_ids,
    reassignments,
    scram_users,
)
from tidelog.controller import topics as topic_decisions
from tidelog.controller.client_quotas import AlteredQuotas, QuotasToAlter
from tidelog.controller.delegation_tokens import CreatedToken, TokenToCreate
from tidelog.controller.directory_assignments import ReplicaInDirectory
from tidelog.controller.early_fencing import EarlyFence, Suspect, Suspicions
from tidelog.controller.isr_changes import AlteredPartition, PartitionKey, PartitionToAlter
from tidelog.controller.leaders import ElectionType
from tidelog.controller.losses import ToldLoss
from tidelog.controller.lost_replicas import LostReplica, lost_replicas
from tidelog.controller.partition_scan import PartitionScan, PartitionScans
from tidelog.controller.scram_users import AlteredScramUser, ScramUserChange
from tidelog.controller.sessions import BrokerSessions
from tidelog.controller.unclean_elections import UncleanElection, unclean_election
from tidelog.controller.values import (
    NO_CONTROLLERS,
    AlteredConfigs,
    BrokerChange,
    BrokerToRegister,
    ConfigsToAlter,
    ControllerSettings,
    CreateTopicResult,
    DeletedTopic,
    ElectedLeader,
    FeatureToUpdate,
    FirstMetadata,
    GrownTopic,
    Heartbeat,
    HeartbeatReply,
    PartitionToReassign,
    ProducerIdBlock,
    QuorumControllers,
    ReassignedPartition,
    TopicToCreate,
    TopicToDelete,
    TopicToGrow,
    UpdatedFeature,
)
from tidelog.journal import Decision, LongDecision
from tidelog.metadata.acls import Acl
from tidelog.metadata.configs.delegation_tokens import TOKEN_SECRET_KEY
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.image import ControllerImage, MetadataImage
from tidelog.metadata.records.acls import AccessControlEntryRecord, RemoveAccessControlEntryRecord, acl_of
from tidelog.metadata.records.delegation_tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from tidelog.metadata.records.topics import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.metadata.topic_names import collision_key
from tidelog.security.delegation_tokens import TokensByHmac


class ControllerState:
    """A state for `Journal`: `decide_*` changes nothing, `apply` refuses nothing.

    There is a `decide_*` for each request that changes the metadata, and a module with its rules. Refusals of a whole
    request are raised as `KafkaError`; those of one topic among several are in the reply.

    Attributes:
        metadata: what the records applied so far say. Of the committed state, its image may be published.
        scans: the passes over it that are told what is applied.
        lost: who lost a replica by what was applied since somebody took the list away; None where nobody wants to know,
            as of every clone.
        unclean_elections: those that were applied since somebody took the list away; None likewise.
    """

    def __init__(self, settings: ControllerSettings, image: MetadataImage | None = None) -> None:
        """The state that `image` (empty unless given) shows."""
        self.settings = settings
        self.metadata = MetadataDraft(image or MetadataImage.empty())
        self.lost: list[LostReplica] | None = None
        self.unclean_elections: list[UncleanElection] | None = None
        self.scans = PartitionScans(self.metadata)
        self._names_taken = {collision_key(name): name for name in self.metadata.topics_by_name}
        self._partition_count = sum(len(topic.partitions) for topic in self.metadata.topics_by_id.values())
        self._acls = Counter(self.metadata.acls.values())  # two ids may hold the same rule
        self._tokens = TokensByHmac(settings.broker[TOKEN_SECRET_KEY])
        for token_id in self.metadata.delegation_tokens:
            self._tokens.add(token_id)

    def apply(self, record: object) -> None:
        """Take a record of the metadata log in."""
        if self.lost is not None and isinstance(record, PartitionChangeRecord | RemoveTopicRecord):
            self.lost += lost_replicas(self.metadata, record)
        if self.unclean_elections is not None and isinstance(record, PartitionChangeRecord):
            election = unclean_election(self.metadata, record, self.settings)
            if election is not None:
                self.unclean_elections.append(election)
        if isinstance(record, TopicRecord):
            self._names_taken[collision_key(record.name)] = record.name
        elif isinstance(record, RemoveTopicRecord):
            topic = self.metadata.topics_by_id.get(TopicId(record.topic_id))
            if topic is not None:
                self._names_taken.pop(collision_key(topic.name), None)
                self._partition_count -= len(topic.partitions)
        elif isinstance(record, PartitionRecord):
            known = self.metadata.topics_by_id[TopicId(record.topic_id)].partitions
            self._partition_count += record.partition_id >= len(known)
        elif isinstance(record, AccessControlEntryRecord):
            self._acls[acl_of(record)] += 1
        elif isinstance(record, RemoveAccessControlEntryRecord) and record.id in self.metadata.acls:
            acl = self.metadata.acls[record.id]
            self._acls[acl] -= 1
            if not self._acls[acl]:
                del self._acls[acl]
        elif isinstance(record, DelegationTokenRecord):
            self._tokens.add(record.token_id)
        elif isinstance(record, RemoveDelegationTokenRecord):
            self._tokens.remove(record.token_id)
        self.metadata.apply(record)
        self.scans.on_applied(record)

    def clone(self) -> ControllerState:
        """O(topics + delegation tokens), references only."""
        copy = ControllerState(self.settings)
        copy.metadata = self.metadata.clone()
        copy.scans = PartitionScans(copy.metadata)
        copy._names_taken = dict(self._names_taken)
        copy._partition_count = self._partition_count
        copy._acls = Counter(self._acls)
        copy._tokens = self._tokens.clone()
        return copy

    def fork(self) -> ControllerState:
        """A clone that takes in what may come to count or not. It notes what this one does; see `adopt`."""
        copy = self.clone()
        copy.lost = None if self.lost is None else []
        copy.unclean_elections = None if self.unclean_elections is None else []
        return copy

    def adopt(self, before: ControllerState) -> None:
        """This one, a fork, takes the place of that which it was made of."""
        self.lost = None if before.lost is None else [*before.lost, *(self.lost or ())]
        elections = before.unclean_elections
        self.unclean_elections = None if elections is None else [*elections, *(self.unclean_elections or ())]

    def decide_bootstrap(self, first: FirstMetadata | None = None) -> Decision[None]:
        """What a controller that becomes active adds to the metadata, where that does not say it yet."""
        return features.decide_bootstrap(self.metadata, self.settings, first)

    def decide_register_broker(
        self,
        broker: BrokerToRegister,
        *,
        next_offset: Offset,
        sessions: BrokerSessions | None = None,
        now_ms: int = 0,
        scan: PartitionScan | None = None,
    ) -> Decision[BrokerChange]:
        """Register a broker, fenced; a new incarnation ends the leaderships of the old one in the same batch.

        `next_offset` is the journal's; it becomes the broker epoch. A session begins with it, at `now_ms` (monotonic);
        without `sessions` no other process is taken to be alive, and none is that has lost its log directories to this
        one: a process locks them. `scan` is to be kept for the next portion. See `brokers.decide_register_broker`.

        A request of an incarnation that another one replaced comes late: it would take the seats of the one that lives.

        Raises:
            KafkaError: as it does; and DUPLICATE_BROKER_REGISTRATION for such a request.
        """
        previous = self.metadata.brokers.get(broker.broker_id)
        if sessions is not None and sessions.was_replaced(broker.broker_id, broker.incarnation_id):
            raise refusal(
                Code.DUPLICATE_BROKER_REGISTRATION,
                f"another process has taken the place of this one as broker {broker.broker_id}: stop one of them, or "
                "give it another node.id",
            )
        holds_its_directories = previous is not None and not set(previous.log_dirs).isdisjoint(broker.log_dirs)
        is_alive = sessions is not None and sessions.is_alive(broker.broker_id, now_ms)
        is_previous_alive = is_alive and not holds_its_directories
        decision = brokers.decide_register_broker(
            self.metadata,
            self.settings,
            broker,
            next_offset=next_offset,
            is_previous_alive=is_previous_alive,
            scan=self.scans.pass_over(scan),
        )
        if sessions is not None and previous is not None and decision.reply.has_more:
            sessions.on_leaving(broker.broker_id, previous.broker_epoch, now_ms)
        elif sessions is not None and not decision.reply.has_more:
            sessions.on_contact(broker.broker_id, decision.reply.broker_epoch, None, now_ms)
            if previous is not None and previous.incarnation_id != broker.incarnation_id:
                sessions.on_replaced(broker.broker_id, previous.incarnation_id)
        return decision

    def decide_unfence_broker(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> Decision[BrokerChange]:
        """Let a broker lead, and elect it where nobody leads and it is in sync or eligible."""
        return brokers.decide_unfence_broker(self.metadata, self.settings, broker_id, broker_epoch)

    def decide_fence_broker(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> Decision[BrokerChange]:
        """Let a broker lead no longer."""
        return brokers.decide_fence_broker(self.metadata, self.settings, broker_id, broker_epoch)

    def decide_unregister_broker(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch | None = None,
        *,
        sessions: BrokerSessions | None = None,
        now_ms: int = 0,
        scan: PartitionScan | None = None,
    ) -> Decision[BrokerChange]:
        """Forget a broker that is gone for good, and end its session. `now_ms` is monotonic.

        Args:
            broker_epoch: of the last reply, where there is more: another incarnation stays.
            scan: to be kept for the next portion.
        """
        decision = brokers.decide_unregister_broker(
            self.metadata, self.settings, broker_id, broker_epoch, scan=self.scans.pass_over(scan)
        )
        if sessions is not None and decision.reply.has_more:
            sessions.on_leaving(broker_id, decision.reply.broker_epoch, now_ms)
        elif sessions is not None and decision.records:
            sessions.on_ended(broker_id)
        return decision

    def decide_pending_changes(self, scan: PartitionScan | None = None) -> Decision[int]:
        """The next portion of what fences, arrivals and settings have left to do; how many partitions that changes.

        Args:
            scan: goes on with it; without, this is the first portion of a pass.
        """
        return pending_changes.decide_pending_changes(
            self.metadata, self.settings, scan or PartitionScan(self.metadata)
        )

    def decide_heartbeat(
        self,
        heartbeat: Heartbeat,
        sessions: BrokerSessions,
        *,
        next_offset: Offset,
        now_ms: int,
        scan: PartitionScan | None = None,
    ) -> Decision[HeartbeatReply]:
        """Let a broker in, out, or shut down, as it wants; `sessions` notes at once that it is alive.

        `next_offset` is the journal's, `now_ms` monotonic, and `scan` to be kept for the next portion.
        """
        return heartbeats.decide_heartbeat(
            self.metadata,
            self.settings,
            heartbeat,
            sessions,
            next_offset=next_offset,
            now_ms=now_ms,
            scan=self.scans.pass_over(scan) if heartbeat.wants_shut_down else PartitionScan(),
        )

    def decide_fence_expired(self, sessions: BrokerSessions, *, now_ms: int) -> Decision[tuple[BrokerId, ...]]:
        """Fence whoever was not heard of for a session. To be asked at `sessions.next_deadline_ms()`."""
        return heartbeats.decide_fence_expired(self.metadata, self.settings, sessions, now_ms=now_ms)

    def decide_fence_early(self, suspicions: Suspicions, suspect: Suspect, *, now_ms: int) -> Decision[EarlyFence]:
        """Let others lead what a broker leads whose port has just refused a connection, unless there is a doubt."""
        if suspect.held is not None:
            self.scans.pass_over(suspect.scan)
        return early_fencing.decide_fence_early(self.metadata, self.settings, suspicions, suspect, now_ms=now_ms)

    def decide_alter_partitions(
        self,
        sender: BrokerId,
        sender_epoch: BrokerEpoch,
        partitions: Sequence[PartitionToAlter],
        *,
        repeated: Collection[PartitionKey] | None = None,
    ) -> Decision[tuple[AlteredPartition, ...]]:
        """Grant a leader the ISRs that it asks for, each on its own; results in the order of the request."""
        return isr_changes.decide_alter_partitions(
            self.metadata, self.settings, sender, sender_epoch, partitions, repeated=repeated
        )

    def decide_elect_leaders(
        self, kind: ElectionType, partitions: Sequence[TopicPartition] | None = None, *, is_of_all: bool = False
    ) -> Decision[tuple[ElectedLeader, ...]]:
        """Elect leaders as an operator orders, in all partitions unless some are named.

        Args:
            is_of_all: they are one of `elections.pieces_to_elect`.
        """
        if partitions is None:
            partitions, is_of_all = elections.partitions_to_elect(self.metadata, kind), True
        return elections.decide_elect_leaders(self.metadata, self.settings, kind, partitions, is_of_all=is_of_all)

    def decide_balance_leaders(self, scan: PartitionScan | None = None) -> Decision[int]:
        """Give leaderships back to preferred replicas that are in sync, some at a time; the reply is how many.

        Args:
            scan: goes on with it; without, this is the first portion of a pass.
        """
        return balancing.decide_balance_leaders(self.metadata, self.settings, scan or PartitionScan(self.metadata))

    def decide_alter_reassignments(
        self, partitions: Sequence[PartitionToReassign], *, allows_factor_change: bool = True
    ) -> Decision[tuple[ReassignedPartition, ...]]:
        """Move partitions to other replicas, or cancel that; results in the order of the request."""
        return reassignments.decide_alter_reassignments(
            self.metadata, self.settings, partitions, allows_factor_change=allows_factor_change
        )

    def decide_create_topics(
        self, topics: Sequence[TopicToCreate], *, rng: Rng, validate_only: bool = False
    ) -> Decision[tuple[CreateTopicResult, ...]]:
        """Create topics, each on its own; results in the order of the request."""
        return topic_decisions.decide_create_topics(
            self.metadata,
            self.settings,
            topics,
            names_taken=self._names_taken,
            partition_count=self._partition_count,
            rng=rng,
            validate_only=validate_only,
        )

    def decide_delete_topics(self, topics: Sequence[TopicToDelete]) -> Decision[tuple[DeletedTopic, ...]]:
        """Delete topics, each on its own; results in the order of the request."""
        return topic_decisions.decide_delete_topics(self.metadata, self.settings, topics)

    def decide_create_partitions(
        self, topics: Sequence[TopicToGrow], *, rng: Rng, validate_only: bool = False
    ) -> Decision[tuple[GrownTopic, ...]]:
        """Give topics more partitions, each on its own; results in the order of the request."""
        return partitions.decide_create_partitions(
            self.metadata,
            self.settings,
            topics,
            partition_count=self._partition_count,
            rng=rng,
            validate_only=validate_only,
        )

    def decide_alter_configs(
        self, resources: Sequence[ConfigsToAlter], *, validate_only: bool = False, scan: PartitionScan | None = None
    ) -> Decision[tuple[AlteredConfigs, ...]]:
        """Change settings of topics and brokers, each on its own; results in the order of the request.

        `scan` is to be kept for the next portion.
        """
        return configs.decide_alter_configs(
            self.metadata, self.settings, resources, validate_only=validate_only, scan=self.scans.pass_over(scan)
        )

    def decide_create_acls(self, wanted: Sequence[Acl], *, rng: Rng) -> Decision[tuple[KafkaError | None, ...]]:
        """Make access rules, each on its own; why each was not made, in the order of the request."""
        return acls.decide_create_acls(self.metadata, self.settings, wanted, there=self._acls, rng=rng)

    def decide_remove_acls(self, acl_ids: Sequence[UUID]) -> Decision[None]:
        """Take access rules back, by the ids of their records."""
        return acls.decide_remove_acls(self.metadata, acl_ids)

    def decide_alter_client_quotas(
        self, entries: Sequence[QuotasToAlter], *, validate_only: bool = False
    ) -> Decision[tuple[AlteredQuotas, ...]]:
        """Change quotas of clients, each entity on its own; results in the order of the request."""
        return client_quotas.decide_alter_client_quotas(
            self.metadata, self.settings, entries, validate_only=validate_only
        )

    def decide_alter_scram_users(self, changes: Sequence[ScramUserChange]) -> Decision[tuple[AlteredScramUser, ...]]:
        """Set and remove passwords, each user on its own; results in the order in which users are first named."""
        return scram_users.decide_alter_scram_users(self.metadata, self.settings, changes)

    def decide_create_token(
        self, requester: Requester, to_create: TokenToCreate, *, rng: Rng, now_ms: int
    ) -> Decision[CreatedToken]:
        """Create a delegation token. `now_ms` is since 1970."""
        return delegation_tokens.decide_create_token(
            self.metadata, self.settings, requester, to_create, rng=rng, now_ms=now_ms
        )

    def decide_renew_token(
        self, requester: Requester, hmac: bytes, *, period_ms: int | None, now_ms: int
    ) -> Decision[int]:
        """Have a delegation token count for longer. Returns until when; times are since 1970."""
        return delegation_tokens.decide_renew_token(
            self.metadata, self.settings, self._tokens, requester, hmac, period_ms=period_ms, now_ms=now_ms
        )

    def decide_expire_token(
        self, requester: Requester, hmac: bytes, *, period_ms: int | None, now_ms: int
    ) -> Decision[int]:
        """Have a delegation token end, at once unless a period is named. Returns when; times are since 1970."""
        return delegation_tokens.decide_expire_token(
            self.metadata, self.settings, self._tokens, requester, hmac, period_ms=period_ms, now_ms=now_ms
        )

    def decide_sweep_tokens(self, token_ids: Iterable[str], *, now_ms: int) -> Decision[tuple[str, ...]]:
        """Remove those of some delegation tokens that have expired; the reply is which. `now_ms` is since 1970."""
        return delegation_tokens.decide_sweep_tokens(self.metadata, token_ids, now_ms=now_ms)

    def decide_update_features(
        self,
        updates: Sequence[FeatureToUpdate],
        *,
        validate_only: bool = False,
        of_quorum: QuorumControllers = NO_CONTROLLERS,
    ) -> LongDecision[tuple[UpdatedFeature, ...]]:
        """Set the levels of features, all of them or none; results in the order of the request."""
        return features.decide_update_features(
            self.metadata, self.settings, updates, validate_only=validate_only, controllers=of_quorum
        )

    def decide_register_controller(
        self, controller: ControllerImage, *, members: Collection[BrokerId]
    ) -> Decision[None]:
        """Note what a controller is; `members` are those of the metadata quorum."""
        return controllers.decide_register_controller(self.metadata, controller, members=members)

    def decide_assign_directories(
        self, broker_id: BrokerId, broker_epoch: BrokerEpoch, replicas: Sequence[ReplicaInDirectory]
    ) -> Decision[tuple[Code, ...]]:
        """Note in which log directories the replicas of a broker lie; results in the order of the request."""
        return directory_assignments.decide_assign_directories(
            self.metadata, self.settings, broker_id, broker_epoch, replicas
        )

    def accounted(self, records: Sequence[object], *, now_ms: int) -> tuple[object, ...]:
        """Records that were decided, with what they mean for the account of losses. `now_ms` is since 1970."""
        return losses.accounted(self.metadata, self.settings, records, now_ms=now_ms)

    def decide_tell_losses(
        self, broker_id: BrokerId, broker_epoch: BrokerEpoch, told: Sequence[ToldLoss], *, now_ms: int
    ) -> Decision[tuple[()]]:
        """Note what the replicas of a broker held. `now_ms` is since 1970."""
        return losses.decide_tell_losses(self.metadata, self.settings, broker_id, broker_epoch, told, now_ms=now_ms)

    def decide_acknowledge_losses(
        self, found: Sequence[LossId], note: str, *, now_ms: int
    ) -> Decision[tuple[bool, ...]]:
        """Note that an operator has dealt with entries; whether there is each. `now_ms` is since 1970."""
        return losses.decide_acknowledge_losses(self.metadata, found, note, now_ms=now_ms)

    def decide_allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> Decision[ProducerIdBlock]:
        """Give a broker the next block of producer ids."""
        return producer_ids.decide_allocate_producer_ids(self.metadata, broker_id, broker_epoch)
