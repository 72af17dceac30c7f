"""Requests to the active controller, wherever it is: to its controller listener, over TCP, be it this node's own.

Who leads the quorum changes, and what was asked of one that leads no longer may or may not have been done. So a request
is sent again, to the next one, until it is answered or its time is over: what is asked here bears being asked twice. It
does not bear being done late, when something else was asked since: what is asked for clients says which attempt it is.

Kafka: `NodeToControllerChannelManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, NetworkError, refusal
from tidelog.base.ids import BrokerId, ClusterId, LeaderEpoch, Offset
from tidelog.base.ports import Network, Rng
from tidelog.net.address import Address
from tidelog.net.backoff import Backoff
from tidelog.net.connection import OF_NODES, Connection, ConnectionSettings
from tidelog.net.pool import CONTROL_REQUESTS, ConnectionPool
from tidelog.net.security import ConnectionSecurity
from tidelog.server.quorum.forwarded_attempts import Attempt
from tidelog.server.tasks import unless
from tidelog.wire import NO_TOKEN_YET, ApiKey, ConsistencyState
from tidelog.wire.schema import layout_of

if TYPE_CHECKING:
    from tidelog.wire.messages.api_58_envelope import EnvelopeRequest, EnvelopeResponse

R = TypeVar("R")

RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 500
CONNECT_TIMEOUT_MS = 2_000
ENVELOPE_VERSION = 0


class LeaderSource(Protocol):
    """Knows which node leads the metadata quorum."""

    @property
    def leader_id(self) -> BrokerId | None: ...

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        """The latest that is known."""
        ...

    @property
    def leader_address(self) -> Address | None:
        """Of its controller listener; None while nobody is known to lead."""
        ...

    @property
    def is_leaderless(self) -> bool:
        """Whether nobody can be asked yet, and somebody may be elected: not where all that answer are foreign."""
        ...

    @property
    def leaderless_ms(self) -> int:
        """For how long no leader was heard of; 0 while that is no longer than one may be silent."""
        ...

    @property
    def voters_heard(self) -> str:
        """How many voters answer, in words."""
        ...

    async def leader_changed(self) -> None:
        """Return at the next change of the leader, of its epoch, or of `is_leaderless`."""
        ...


class SealedRequest(Protocol):
    """A request with the client that it is asked for (KIP-590)."""

    def sealed(self, version: int) -> EnvelopeRequest:
        """What is sent, with the request in this version."""
        ...

    async def opened(self, answer: EnvelopeResponse, version: int) -> Any:
        """The answer to the request. Raises KafkaError: the controller said why there is none."""
        ...


class LastToken:
    """How recent the metadata is that the controller's answers reflected (KIP-1243).

    A request says that it wants to be told, and names no token that its answer would have to wait for.

    Args:
        cluster_id: answers of another cluster end their connection.
    """

    def __init__(self, cluster_id: ClusterId) -> None:
        self.last_offset: Offset | None = None
        self._cluster_id = cluster_id

    def state(self) -> ConsistencyState:
        return NO_TOKEN_YET

    def on_state(self, state: ConsistencyState) -> None:
        if state.cluster_id not in (None, self._cluster_id):
            raise NetworkError(
                f"a controller of cluster {state.cluster_id} answered; this node is of {self._cluster_id}"
            )
        if state.token is not None and state.token > (-1 if self.last_offset is None else self.last_offset):
            self.last_offset = Offset(state.token)


class _Sender:
    """Of the requests of one class: what breaks the connection of another fences none of them.

    Attributes:
        generation: how many were given up without an answer: they may be heard later than those to come.
    """

    __slots__ = ("generation", "sender_id")

    def __init__(self, sender_id: UUID) -> None:
        self.sender_id = sender_id
        self.generation = 0


class ControllerChannel:
    """See the module. Belongs to the event loop it is used in.

    Args:
        node_id: this node.
        leader: who is asked.
    """

    def __init__(
        self,
        node_id: BrokerId,
        cluster_id: ClusterId,
        leader: LeaderSource,
        *,
        network: Network,
        security: ConnectionSecurity | None = None,
        rng: Rng,
    ) -> None:
        self._leader = leader
        self._network = network
        self._token = LastToken(cluster_id)
        self._settings = ConnectionSettings(
            f"broker-{node_id}",
            CONNECT_TIMEOUT_MS,
            consistency=self._token,
            security=security,
            protocol_setting=OF_NODES,
        )
        self._backoff = Backoff(RETRY_BACKOFF_MS, RETRY_BACKOFF_MS_MAX, rng)
        self._pools: dict[Address, ConnectionPool] = {}  # of the leader alone, and none before it was asked
        self._rng = rng
        self._senders: dict[str, _Sender] = {}  # by request class
        self._is_closed = False

    @property
    def last_offset(self) -> Offset | None:
        """The latest metadata that an answer reflected, inclusive: who waits for it sees all that was answered."""
        return self._token.last_offset

    async def leader_changed(self) -> None:
        """Return when another node, or nobody, is known to be asked."""
        await self._leader.leader_changed()

    @property
    def is_leaderless(self) -> bool:
        """Whether nobody can be asked, and somebody may be elected."""
        return self._leader.is_leaderless

    async def leaderless(self, is_so: bool = True) -> None:
        """Return as soon as `is_leaderless` is so, or is not."""
        while self.is_leaderless is not is_so:
            await self._leader.leader_changed()

    async def request(
        self,
        message: object,
        response: type[R],
        *,
        timeout_ms: int,
        version: int | None = None,
        request_class: str = CONTROL_REQUESTS,
        leaderless_ms_max: int | None = None,
        envelope: SealedRequest | None = None,
    ) -> R:
        """Send a request to the active controller; after NOT_CONTROLLER, or no answer, to the next one.

        Args:
            message: a request message.
            response: the class of its answer.
            version: the very version to use; by default the highest that both sides have.
            request_class: requests of one class are answered in turn. What must not wait for others has one of its own.
            leaderless_ms_max: once nobody has led the quorum for so long, the time is over; None to wait all the same.
            envelope: says for whom it is asked; left out where the controller is of a release that serves none.

        Raises:
            KafkaError: REQUEST_TIMED_OUT: no controller answered within `timeout_ms`; the text says what was in the
                way. UNSUPPORTED_VERSION: it does not serve this version. What is wrong with the envelope.
            NetworkError: the channel is closed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        reason = ""
        send = partial(
            _send, message, response, version=version, envelope=envelope, attempt=partial(self._attempt, request_class)
        )

        async def ask() -> R:
            nonlocal reason
            failures = 0
            while True:
                if self._is_closed:
                    raise _closed()
                address = self._leader.leader_address
                if address is None:
                    await self._leader.leader_changed()
                    continue
                left_ms = max(int((deadline - loop.time()) * 1000), 1)
                request = self._request(address, request_class, partial(send, timeout_ms=left_ms))
                try:
                    answer = await unless(request, self._moved(address))  # whoever is asked then has no answer
                except NetworkError as error:
                    reason = str(error)
                except KafkaError as error:
                    if error.code != Code.NOT_CONTROLLER:
                        raise
                    reason = f"{address} is not the active controller any more"
                else:
                    if answer is not None and not says_not_controller(answer):
                        return answer
                    reason = f"{address} is not the active controller any more"
                failures += 1
                await unless(asyncio.sleep(self._backoff.delay_ms(failures) / 1000), self._moved(address))

        try:
            async with asyncio.timeout_at(deadline):
                asked = ask() if leaderless_ms_max is None else unless(ask(), self._lost(leaderless_ms_max))
                answer = await asked
        except TimeoutError:
            answer, when = None, f"no answer of the controller in {timeout_ms} ms: "
        else:
            when = ""
        if answer is not None:
            return answer
        if self._leader.leaderless_ms or self._leader.leader_address is None:
            reason = f"no controller leads the metadata quorum: {self._leader.voters_heard}"
        raise refusal(Code.REQUEST_TIMED_OUT, when + (reason or "it was asked"))

    async def _lost(self, leaderless_ms_max: int) -> None:
        """Return once nobody has led for so long."""
        while (left_ms := leaderless_ms_max - self._leader.leaderless_ms) > 0:
            await asyncio.sleep(left_ms / 1000)

    async def close(self) -> None:
        """Close the connection. Requests under way fail."""
        self._is_closed = True
        await self._close_all_but(None)

    async def _request(self, address: Address, request_class: str, send: Callable[[Connection], Awaitable[R]]) -> R:
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools[address] = ConnectionPool(self._network, self._settings, self._backoff, is_node=True)
            await self._close_all_but(address)
        connection = await pool.connection(address, request_class)
        try:
            return await send(connection)
        except (NetworkError, asyncio.CancelledError):
            self._sender(request_class).generation += 1
            raise

    def _attempt(self, request_class: str) -> Attempt:
        """The one that is sent now."""
        sender, leader_epoch = self._sender(request_class), self._leader.leader_epoch
        return Attempt(sender.sender_id, sender.generation, -1 if leader_epoch is None else leader_epoch)

    def _sender(self, request_class: str) -> _Sender:
        sender = self._senders.get(request_class)
        if sender is None:
            sender = self._senders[request_class] = _Sender(self._rng.uuid())
        return sender

    async def _close_all_but(self, address: Address | None) -> None:
        for other in [known for known in self._pools if known != address]:
            await self._pools.pop(other).close()

    async def _moved(self, address: Address) -> None:
        """Return as soon as another node is known to lead."""
        while self._leader.leader_address in (address, None):
            await self._leader.leader_changed()


async def _send(
    message: object,
    response: type[R],
    connection: Connection,
    *,
    timeout_ms: int,
    version: int | None,
    envelope: SealedRequest | None,
    attempt: Callable[[], Attempt],
) -> R:
    versions, lowest = connection.versions, 0 if version is None else version
    version = versions.version(layout_of(type(message)).api_key, min_version=lowest, max_version=version)
    if envelope is None or not versions.serves(ApiKey.ENVELOPE, ENVELOPE_VERSION):
        return await connection.request(message, response, timeout_ms=timeout_ms, version=version)
    from tidelog.wire.messages.api_58_envelope import EnvelopeResponse

    sealed = envelope.sealed(version)
    sealed.sender_id, sealed.sender_generation, sealed.leader_epoch = attempt()
    answer = await connection.request(sealed, EnvelopeResponse, timeout_ms=timeout_ms, version=ENVELOPE_VERSION)
    opened: R = await envelope.opened(answer, version)
    return opened


def says_not_controller(response: object) -> bool:
    """Whether an answer, as a whole or in any of its rows, says that another node is the active controller.

    Of the quorum itself the leader is asked, and who is none says so by a code of its own.
    """
    if getattr(response, "error_code", Code.NONE) == Code.NOT_LEADER_OR_FOLLOWER:
        return True
    return _has_row_that_says_so(response)


def _has_row_that_says_so(response: object) -> bool:
    if getattr(response, "error_code", Code.NONE) == Code.NOT_CONTROLLER:
        return True
    cls: Any = type(response)
    return any(_has_row_that_says_so(row) for name in _lists_with_codes(cls) for row in getattr(response, name) or ())


@cache
def _lists_with_codes(cls: type[Any]) -> tuple[str, ...]:
    """The lists of a message, or of a row, whose rows have a code, or have such rows: there are many others."""
    rows = {spec.name: spec.type.element.layout for spec in layout_of(cls).fields if spec.type.element is not None}
    return tuple(name for name, layout in rows.items() if layout is not None and _has_code(layout.cls))


def _has_code(cls: Any) -> bool:
    return any(spec.name == "error_code" for spec in layout_of(cls).fields) or bool(_lists_with_codes(cls))


def _closed() -> NetworkError:
    return NetworkError("this node stops, and asks the controller nothing more")
