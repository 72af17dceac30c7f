"""What handlers use of the node that they answer for. `Node` has all of it, and nothing here knows `Node`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from tidelog.base.ids import (
        BrokerEpoch,
        BrokerId,
        ClusterId,
        Offset,
        ProducerId,
    )
    from tidelog.base.ports import Clock, Executor, Rng
    from tidelog.controller import CreateTopicResult, TopicToCreate
    from tidelog.metadata import MetadataImage
    from tidelog.metadata.configs import BrokerSettings
    from tidelog.security.authorizer import Authorizer
    from tidelog.server.api.audit_log import AuditLog
    from tidelog.server.api.fetch_sessions import FetchSessions
    from tidelog.server.api.request_context import RequestContext
    from tidelog.server.api.told_readers import ToldReaders
    from tidelog.server.broker.broker import Broker
    from tidelog.server.groups.group_coordinators import GroupCoordinators
    from tidelog.server.groups.share_group_positions import ShareGroupPositions
    from tidelog.server.membership.broker_watch import BrokerWatch
    from tidelog.server.membership.controller_channel import ControllerChannel
    from tidelog.server.membership.controller_registrations import ControllerRegistrations
    from tidelog.server.quorum.controller import Controller
    from tidelog.server.quorum.metadata_quorum import MetadataQuorum
    from tidelog.server.quorum.voter_requests import VoterRequests
    from tidelog.server.settings.config import NodeConfig
    from tidelog.server.settings.metrics import NodeMetrics
    from tidelog.server.share_fetching.share_fetching import ShareFetching
    from tidelog.server.share_state.share_coordinators import ShareCoordinators
    from tidelog.server.storage.log_files import LogFiles
    from tidelog.server.transactions.markers import MarkerWriter
    from tidelog.server.transactions.transaction_coordinators import TransactionCoordinators
    from tidelog.server.transactions.verification import TransactionVerification
    from tidelog.server.transport.connections import Connections
    from tidelog.wire import ConsistencyState


class MetadataApi(Protocol):
    """The cluster as this node knows it."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def cluster_id(self) -> ClusterId: ...
    @property
    def image(self) -> MetadataImage:
        """The metadata that this node answers from."""
        ...

    @property
    def authorizer(self) -> Authorizer:
        """By the rules of `image`. `AllowEverything`, or not, from before the first request on."""
        ...

    @property
    def audit(self) -> AuditLog:
        """What is told of who changed what, and who was refused."""
        ...

    @property
    def kraft_version(self) -> int:
        """1 where the metadata log says who votes, and 0 where the settings do."""
        ...

    @property
    def controller_id(self) -> BrokerId | None:
        """The node that clients take for the controller; None while no broker is active."""
        ...

    @property
    def consistency_state(self) -> ConsistencyState:
        """What every answer is stamped with: how recent the metadata is that it reflects (KIP-1243)."""
        ...

    @property
    def broker_settings(self) -> BrokerSettings:
        """What is set for this broker: its file, and what was changed since."""
        ...


class DataApi(MetadataApi, Protocol):
    """The partitions of this broker, and their files."""

    @property
    def clock(self) -> Clock: ...
    @property
    def connections(self) -> Connections: ...
    @property
    def broker(self) -> Broker: ...
    @property
    def files(self) -> LogFiles: ...
    @property
    def fetch_sessions(self) -> FetchSessions: ...
    @property
    def told_readers(self) -> ToldReaders: ...
    @property
    def metrics(self) -> NodeMetrics | None:
        """What is counted; None unless somebody wants to know."""
        ...

    @property
    def broker_epoch(self) -> BrokerEpoch | None: ...
    @property
    def metadata_received_end_offset(self) -> Offset:
        """Exclusive: so much of the metadata is known to be committed here, be it applied by the broker or not."""
        ...

    async def next_producer_id(self) -> ProducerId:
        """An id that nobody was given before, over all restarts. Raises KafkaError."""
        ...

    async def create_topics(
        self, topics: Sequence[TopicToCreate], context: RequestContext | None = None
    ) -> tuple[CreateTopicResult, ...]:
        """Create topics, wherever the controller is; what was created can be written to when this returns.

        Args:
            context: of the request for which they are created; None for topics of this node's own.

        Raises:
            KafkaError: REQUEST_TIMED_OUT where no controller answered; KAFKA_STORAGE_ERROR: the disk is full.
        """
        ...


class GroupsApi(MetadataApi, Protocol):
    """The coordinators of groups at this broker."""

    @property
    def groups(self) -> GroupCoordinators: ...


class ShareGroupsApi(GroupsApi, Protocol):
    """The coordinators of groups at this broker, and where share groups stand."""

    @property
    def share_positions(self) -> ShareGroupPositions: ...


class TransactionsApi(GroupsApi, DataApi, Protocol):
    """The coordinators of transactions at this broker, and what its partitions have to do with transactions."""

    @property
    def transactions(self) -> TransactionCoordinators: ...
    @property
    def marker_writer(self) -> MarkerWriter: ...
    @property
    def verification(self) -> TransactionVerification: ...


class ShareStatesApi(MetadataApi, Protocol):
    """The coordinators of share groups' states at this broker."""

    @property
    def share_states(self) -> ShareCoordinators: ...


class CoordinatorsApi(TransactionsApi, ShareGroupsApi, ShareStatesApi, Protocol):
    """All coordinators at this broker."""


class ShareApi(DataApi, Protocol):
    """What members of share groups fetch from this broker."""

    @property
    def share_fetching(self) -> ShareFetching: ...


class ControllerApi(MetadataApi, Protocol):
    """The controller, where it is active at this node."""

    @property
    def clock(self) -> Clock: ...
    @property
    def rng(self) -> Rng: ...
    @property
    def controller(self) -> Controller:
        """Raises KafkaError: NOT_CONTROLLER while it is not active here."""
        ...

    @property
    def active_controller(self) -> Controller | None: ...
    @property
    def broker_watch(self) -> BrokerWatch: ...
    @property
    def controller_registrations(self) -> ControllerRegistrations: ...

    async def caught_up(self) -> None:
        """Return once this broker's image reflects all that the controller has answered it by now (own writes)."""
        ...

    async def create_topics_here(
        self, topics: Sequence[TopicToCreate], *, validate_only: bool = False
    ) -> tuple[CreateTopicResult, ...]:
        """Create topics; what was created can be written to at this broker when this returns. Raises KafkaError."""
        ...


class QuorumApi(MetadataApi, Protocol):
    """This node's part in the metadata quorum."""

    @property
    def clock(self) -> Clock: ...
    @property
    def quorum(self) -> MetadataQuorum: ...
    @property
    def voter_requests(self) -> VoterRequests: ...

    async def caught_up(self) -> None:
        """Return once this broker's image reflects all that the controller has answered it by now (own writes)."""
        ...


class ServerApi(CoordinatorsApi, ShareApi, ControllerApi, QuorumApi, Protocol):
    """All of a node that any request may need."""

    @property
    def channel(self) -> ControllerChannel:
        """To the active controller, wherever it is. Raises KafkaError: BROKER_NOT_AVAILABLE while the node starts."""
        ...

    @property
    def failure(self) -> asyncio.Future[str]:
        """Done when the node cannot go on."""
        ...
