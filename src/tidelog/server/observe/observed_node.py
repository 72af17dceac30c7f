"""What the exported metrics say of a node is read from these parts of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.base.ports import Clock
    from tidelog.metadata import MetadataImage
    from tidelog.metadata.configs import BrokerSettings
    from tidelog.server.api.fetch_sessions import FetchSessions
    from tidelog.server.broker.broker import Broker
    from tidelog.server.groups.group_coordinators import GroupCoordinators
    from tidelog.server.groups.group_lags import GroupLags
    from tidelog.server.quorum.controller import Controller
    from tidelog.server.quorum.metadata_quorum import MetadataQuorum
    from tidelog.server.settings.config import NodeConfig
    from tidelog.server.settings.metrics import NodeMetrics
    from tidelog.server.share_fetching.share_fetching import ShareFetching
    from tidelog.server.share_state.share_coordinators import ShareCoordinators
    from tidelog.server.storage.log_files import LogFiles
    from tidelog.server.transactions.transaction_coordinators import TransactionCoordinators
    from tidelog.server.transport.connections import Connections
    from tidelog.server.transport.listeners import Listeners


class ObservedMember(Protocol):
    """What takes part in the cluster."""

    @property
    def quorum(self) -> MetadataQuorum: ...


class ObservedNode(Protocol):
    """A node whose metrics are exported."""

    @property
    def active_controller(self) -> Controller | None: ...
    @property
    def broker(self) -> Broker: ...
    @property
    def broker_settings(self) -> BrokerSettings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def config(self) -> NodeConfig: ...
    @property
    def connections(self) -> Connections: ...
    @property
    def fetch_sessions(self) -> FetchSessions: ...
    @property
    def files(self) -> LogFiles: ...
    @property
    def group_lags(self) -> GroupLags | None:
        """None where nobody measures them."""
        ...

    @property
    def groups(self) -> GroupCoordinators: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def listeners(self) -> Listeners: ...
    @property
    def member(self) -> ObservedMember | None:
        """None while the node starts."""
        ...

    @property
    def metrics(self) -> NodeMetrics | None: ...
    @property
    def not_ready(self) -> str | None:
        """Why the node does not serve at present; None while it does."""
        ...

    @property
    def share_fetching(self) -> ShareFetching: ...
    @property
    def share_states(self) -> ShareCoordinators: ...
    @property
    def transactions(self) -> TransactionCoordinators: ...
    @property
    def unclean_elections(self) -> int: ...
