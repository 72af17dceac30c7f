"""Asks the leaders on other nodes for whatever the followers here want to know: records, and where epochs and logs end.

```
                     ┌── fetches: one at a time, in a fetch session (KIP-227): a request names what changed
 followers ──► one ──┤
   here       fetcher└── questions: OffsetForLeaderEpoch, ListOffsets; all that are there go together
             a leader
```

A leader holds back a fetch that finds nothing. When there is something new to say meanwhile, the next fetch of the
session goes out behind it on the same connection, and the leader answers the one that it held back at once: who begins
to follow does not wait for the others. One connection keeps the fetches of a session in order.

Those that begin to follow are named in portions. So a partition of the session does not wait until its leader has heard
of thousands that join.

Kafka: `ReplicaFetcherManager`, `ReplicaFetcherThread`, `FetchSessionHandler`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import cast
from uuid import UUID

from tidelog.base.errors import Code, NetworkError, TidelogError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidelog.base.ports import Buffer
from tidelog.net.connection import Connection
from tidelog.records.lineage import EpochEntry
from tidelog.replica import FollowerRequest, RecordsRequest
from tidelog.server.replication.follower_driver import FollowerDriver
from tidelog.server.replication.leader_doubts import LeaderDoubts
from tidelog.server.replication.replica_requests import Peers, ReplicaRequests
from tidelog.server.replication.replication_throttles import Throttle
from tidelog.server.settings.replication_settings import ReplicaFetchSettings
from tidelog.server.tasks import Tasks
from tidelog.server.transport.turns import TURN_SIZE, in_turns
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.api_01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

logger = logging.getLogger("tidelog.server.replication")

FETCH_VERSION_MIN = 15
"""The first that carries the broker epoch: without it nobody joins the ISR (KIP-903)."""

SESSION_REFUSALS = frozenset(
    (
        Code.FETCH_SESSION_ID_NOT_FOUND,
        Code.INVALID_FETCH_SESSION_EPOCH,
        Code.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
INT32_MAX = 0x7FFF_FFFF
IN_FLIGHT_MAX = 2
"""Fetches of a session: one that may be held back, and one behind it."""
JOINING_MAX = 100
"""Partitions that a fetch adds to a session, where the leader keeps one. Each takes it some 20 microseconds."""
YIELD_BYTES = 1 << 20
"""Appended in one go; then others have their turn."""
BYTES_PER_ROW = YIELD_BYTES // TURN_SIZE
"""What telling a follower takes, in bytes that could be appended meanwhile."""


_Key = tuple[UUID, int]


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition in the session: what was asked for it, and what the leader said last."""

    following: FollowerDriver
    records_request: RecordsRequest
    named_in: int  # the request that named it last
    answered_in: int = 0  # the request whose answer told these; 0 for none, or an error since
    was_refused: bool = False  # what it asks next is named, be it the same
    high_watermark: int | None = None
    log_start_offset: int | None = None

    def says(self, following: FollowerDriver, records_request: RecordsRequest) -> bool:
        """Whether the leader knows all that is in `records_request` from what it was asked before."""
        return (
            self.following is following
            and not self.was_refused
            and replace(self.records_request, number=records_request.number) == records_request
        )


class ReplicaFetchers:
    """All fetchers of a node: `num.replica.fetchers` for each leader that is followed.

    Args:
        broker_id: this broker.
        broker_epoch: of this incarnation, as far as it is known.
        throttle: holds back what has not caught up, and is named there.
        doubts: told of leaders whose connection closes.

    Attributes:
        version_max: of Fetch: what all brokers serve at the level of the metadata (`replica_fetch_version`). Version 18
            brings the high watermark of KIP-1166, which only the metadata quorum sets.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        peers: Peers,
        settings: ReplicaFetchSettings,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
        throttle: Throttle,
        doubts: LeaderDoubts,
        tasks: Tasks,
    ) -> None:
        self._doubts = doubts
        self._broker_id = broker_id
        self._peers = peers
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self.version_max = FETCH_VERSION_MIN
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._tasks = tasks

    def resize(self, fetchers: int) -> None:
        """Have so many for each leader from now on. Whoever waits for an answer asks anew, where it belongs now."""
        if fetchers == self._settings.fetchers:
            return
        self._settings = replace(self._settings, fetchers=fetchers)
        retired, self._fetchers = list(self._fetchers.values()), {}
        for fetcher in retired:
            self._tasks.start(fetcher.stop())
            fetcher.give_up()

    def send(self, following: FollowerDriver, request: FollowerRequest) -> None:
        """Send a request to the leader that it names."""
        number = hash((following.partition.topic_id.int, following.partition.topic_partition.partition))
        key = request.leader, number % self._settings.fetchers
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = ReplicaFetcher(
                self._broker_id,
                request.leader,
                self._peers,
                self._settings,
                number=key[1],
                broker_epoch=self._broker_epoch,
                version_max=lambda: self.version_max,
                throttle=self._throttle,
                doubts=self._doubts,
                tasks=self._tasks.branch(f"fetcher of broker {request.leader}"),
            )
            fetcher.start()
        fetcher.send(following, request)

    def forget(self, following: FollowerDriver) -> None:
        """Send no more requests for a follower."""
        for fetcher in self._fetchers.values():
            fetcher.forget(following)

    async def stop(self) -> None:
        """Stop all fetchers."""
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))


class ReplicaFetcher:
    """One session with one leader, and the questions beside it."""

    def __init__(
        self,
        broker_id: BrokerId,
        leader: BrokerId,
        peers: Peers,
        settings: ReplicaFetchSettings,
        *,
        number: int,
        broker_epoch: Callable[[], BrokerEpoch | None],
        version_max: Callable[[], int],
        throttle: Throttle,
        doubts: LeaderDoubts,
        tasks: Tasks,
    ) -> None:
        """For one leader; nothing is sent before `start`."""
        self._throttle = throttle
        self._doubts = doubts
        self._held_back: dict[FollowerDriver, RecordsRequest] = {}  # until there is room
        self.leader = leader
        self._broker_id = broker_id
        self._number = number
        self._peers = peers
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._version_max = version_max
        self._wanted: dict[FollowerDriver, RecordsRequest] = {}  # not answered yet
        self._changed: dict[FollowerDriver, None] = {}  # of these, those of the session that ask for something new
        self._paused: set[_Key] = set()  # were taken out of the session while they wanted nothing
        self._joining: dict[FollowerDriver, None] = {}  # of these, those that the session has yet to hear of
        self._unanswered: dict[
            FollowerDriver, RecordsRequest
        ] = {}  # and nobody is asked any more: they are about to be told
        self._idle: dict[_Key, bool] = {}  # may be in the session, and want nothing at present: whether they will again
        self._other_requests = ReplicaRequests(broker_id, leader, peers, timeout_ms=settings.timeout_ms)
        self._has_work = asyncio.Event()
        self._session_id = 0
        self._session_epoch = 0
        self._session: dict[_Key, _Followed] = {}
        self._unconfirmed: dict[_Key, _Followed] = {}  # named in requests, and of which no answer spoke yet
        self._has_sessions = True  # as far as the leader has told
        self._requests = 0
        self._began_in = 0  # the request that began the session
        self._joining_max: int | None = JOINING_MAX
        self._in_flight = 0  # fetches that are not answered
        self._is_beginning = False  # one of them begins a session
        self._tasks = tasks

    def start(self) -> None:
        """Begin to send requests."""
        self._tasks.start(self._fetch_on(), on_bug=self._on_fetches_ended)
        self._tasks.start(self._other_requests.run(), on_bug=self._on_other_requests_ended)

    async def stop(self) -> None:
        """Cancel the fetches under way, and send no more."""
        self._throttle.forget(self)
        await self._tasks.end()

    def give_up(self) -> None:
        """Nobody will be told any more (`stop`): whoever waits is to ask somewhere else."""
        held_back, self._held_back = self._held_back, {}
        self._note_unanswered()
        self._notify_unanswered(len(self._unanswered))
        for following, records_request in held_back.items():
            following.on_unanswered(records_request.number)
        self._other_requests.give_up()

    def send(self, following: FollowerDriver, request: FollowerRequest) -> None:
        """Send a request, together with those of others; a fetch only when the throttle has room."""
        if isinstance(request, RecordsRequest) and self._is_held_back(following, request):
            self._held_back[following] = request
            self._throttle.wait(self)
        elif isinstance(request, RecordsRequest):
            self._wanted[following] = request
            key = _key(following)
            self._idle.pop(key, None)
            known = self._session.get(key)
            if known is None and key not in self._paused:
                self._joining[following] = None
            elif known is not None and known.says(following, request):
                known.records_request = request  # what is under way answers it too
            else:
                self._changed[following] = None
            self._has_work.set()
        else:
            self._other_requests.send(following, request)

    def forget(self, following: FollowerDriver) -> None:
        """It wants nothing any more."""
        key = _key(following)
        if following in self._wanted:
            self._answered(following)
        if key in self._idle:
            self._idle[key] = False
        self._paused.discard(key)
        self._other_requests.forget(following)
        self._held_back.pop(following, None)
        self._unanswered.pop(following, None)

    # What is throttled.

    def _is_held_back(self, following: FollowerDriver, records_request: RecordsRequest) -> bool:
        """Who has what its leader had committed when it last told is not: it needs little, and is to stay so."""
        return self._is_behind(following, records_request) and self._throttle.room_bytes <= 0

    def _is_behind(self, following: FollowerDriver, records_request: RecordsRequest) -> bool:
        if not self._throttle.covers(following.partition.topic_partition):
            return False
        known = self._session.get(_key(following))
        return known is None or known.high_watermark is None or records_request.fetch_offset < known.high_watermark

    def _size_bytes_max(self, fetching: Iterable[FollowerDriver]) -> dict[FollowerDriver, int]:
        """How much to ask for of each that is throttled and behind: they share the room. A batch comes in any case."""
        behind = [following for following in fetching if self._is_behind(following, self._wanted[following])]
        if not behind:
            return {}
        share = max(self._throttle.room_bytes // len(behind), 1)
        return dict.fromkeys(behind, min(share, self._settings.partition_bytes_max))

    def on_room(self) -> None:
        """Send the requests that were held back."""
        held_back, self._held_back = self._held_back, {}
        for following, request in held_back.items():
            self.send(following, request)

    def _answered(self, following: FollowerDriver) -> None:
        """It wants nothing, until it asks anew."""
        del self._wanted[following]
        self._changed.pop(following, None)
        self._joining.pop(following, None)
        self._idle[_key(following)] = True

    # Fetches.

    async def _fetch_on(self) -> None:
        while True:
            await self._has_work.wait()
            await asyncio.sleep(0)  # what is wanted in one step goes together
            self._has_work.clear()
            if not self._may_send:
                continue
            try:
                connection = await self._peers.connection(self.leader, f"replica fetches {self._number}")
                version = connection.versions.version(
                    ApiKey.FETCH, min_version=FETCH_VERSION_MIN, max_version=max(self._version_max(), FETCH_VERSION_MIN)
                )
            except NetworkError:
                self._has_work.set()  # all that is wanted waits for the next attempt, which `Peers` holds back
            except TidelogError as error:
                await self._give_up(error)
            else:
                connection.on_hung_up = partial(self._doubts.on_hung_up, self.leader)
                if self._may_send:
                    self._send(connection, version)
                if self._joining:
                    self._has_work.set()

    @property
    def _may_send(self) -> bool:
        """Whether there is something to ask for, and nothing in flight has to be answered first."""
        if self._is_beginning or self._in_flight == IN_FLIGHT_MAX:
            return False
        return bool(self._changed or self._joining or (self._wanted and not self._in_flight))

    def _send(self, connection: Connection, version: int) -> None:
        self._requests += 1
        request = self._request()
        self._in_flight += 1
        self._is_beginning = request.session_epoch == 0 and self._has_sessions
        fetch = self._fetch(connection, version, request, self._requests)
        self._tasks.start(fetch, on_bug=self._on_fetch_bug)

    def _on_fetch_bug(self, error: Exception) -> None:
        """Whoever waits asks again, in another session."""
        self._begin_anew()
        self._note_unanswered()
        self._notify_unanswered(len(self._unanswered))

    def _on_fetches_ended(self, error: Exception) -> None:
        self._on_fetch_bug(error)
        self._tasks.start(self._fetch_on(), on_bug=self._on_fetches_ended)

    def _on_other_requests_ended(self, error: Exception) -> None:
        self._other_requests.give_up()
        self._tasks.start(self._other_requests.run(), on_bug=self._on_other_requests_ended)

    def _request(self) -> FetchRequest:
        """What changed in the session since the last request; all of it if the leader keeps none."""
        if self._session_epoch == 0:
            self._began_in = self._requests
            self._session.clear()
            self._unconfirmed.clear()
            self._changed.clear()
            self._paused.clear()
            self._joining = dict.fromkeys(self._wanted)
        topics: dict[UUID, FetchTopic] = {}
        joining = list(islice(self._joining, self._joining_max if self._has_sessions else None))
        for following in joining:
            del self._joining[following]
        named, self._changed = [*self._changed, *joining], {}
        size_bytes_max = self._size_bytes_max(named)
        for following in named:
            key, records_request = _key(following), self._wanted[following]
            known = self._session.get(key)
            followed = _Followed(following, records_request, self._requests)
            if known is not None:
                followed.high_watermark, followed.log_start_offset = known.high_watermark, known.log_start_offset
                followed.answered_in = known.answered_in
            self._session[key] = self._unconfirmed[key] = followed
            self._paused.discard(key)
            topic = topics.setdefault(key[0], FetchTopic(topic_id=key[0], partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=records_request.current_leader_epoch,
                    fetch_offset=records_request.fetch_offset,
                    last_fetched_epoch=-1
                    if records_request.last_fetched_epoch is None
                    else records_request.last_fetched_epoch,
                    log_start_offset=records_request.log_start_offset,
                    partition_max_bytes=size_bytes_max.get(following, self._settings.partition_bytes_max),
                )
            )
        forgotten: dict[UUID, ForgottenTopic] = {}
        idle, self._idle = self._idle, {}
        for key in idle.keys() & self._session.keys():
            del self._session[key]
            self._unconfirmed.pop(key, None)
            if idle[key]:
                self._paused.add(key)
            forgotten.setdefault(key[0], ForgottenTopic(topic_id=key[0], partitions=[])).partitions.append(key[1])
        broker_epoch = self._broker_epoch()
        request = FetchRequest(
            replica_state=ReplicaState(self._broker_id, -1 if broker_epoch is None else broker_epoch),
            # The first answer of a session speaks of everything, so it need not wait for anything.
            max_wait_ms=self._settings.wait_ms_max if self._session_epoch or not self._has_sessions else 0,
            min_bytes=self._settings.bytes_min,
            max_bytes=self._settings.response_bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        if self._session_epoch:
            self._session_epoch = 1 if self._session_epoch == INT32_MAX else self._session_epoch + 1
        return request

    async def _fetch(self, connection: Connection, version: int, request: FetchRequest, number: int) -> None:
        try:
            await self._fetch_once(connection, version, request, number)
        finally:
            self._has_work.set()

    async def _fetch_once(self, connection: Connection, version: int, request: FetchRequest, number: int) -> None:
        is_new = request.session_epoch == 0
        timeout_ms = request.max_wait_ms + self._settings.timeout_ms
        asked = asyncio.get_running_loop().time()
        try:
            answer = await connection.send(request, FetchResponse, timeout_ms=timeout_ms, version=version)
        except TidelogError as error:
            await self._give_up(error)
            return
        else:
            self._doubts.on_answered(self.leader, asked)
        finally:
            self._in_flight -= 1
            if is_new:
                self._is_beginning = False
            if self._changed or self._joining:
                self._has_work.set()
        is_latest = number == self._requests
        if answer.error_code:
            if is_latest:  # else the one behind it is refused likewise
                if is_new or answer.error_code not in SESSION_REFUSALS:
                    await self._give_up()
                else:
                    self._begin_anew()
                    self._joining_max = (
                        None  # there may be no room for the whole session: the leader is to see its size
                    )
            return
        if is_latest and is_new:
            self._has_sessions = answer.session_id != 0
            if self._has_sessions:
                self._session_id, self._session_epoch = answer.session_id, 1
        elif is_latest and not answer.session_id:
            self._begin_anew()
        await self._take(answer, number)

    def _begin_anew(self) -> None:
        """The next fetch begins a session, in the place of this one if the leader still has it."""
        self._session_epoch = 0

    async def _give_up(self, error: TidelogError | None = None) -> None:
        """Whoever waits is to ask again, later. Thousands follow one broker, so they are told in turns."""
        if error is not None and not isinstance(error, NetworkError):
            logger.warning("broker %s cannot be followed: %s", self.leader, error)
        self._begin_anew()
        self._joining_max = JOINING_MAX
        self._note_unanswered()
        while self._unanswered:
            self._notify_unanswered(TURN_SIZE)
            await asyncio.sleep(0)

    def _note_unanswered(self) -> None:
        wanted, self._wanted = self._wanted, {}
        self._changed.clear()
        self._joining.clear()
        self._idle.update(dict.fromkeys(map(_key, wanted), True))
        self._unanswered.update(wanted)

    def _notify_unanswered(self, count_max: int) -> None:
        for following in list(islice(self._unanswered, count_max)):
            records_request = self._unanswered.pop(following, None)
            if records_request is not None:
                following.on_unanswered(records_request.number)

    async def _take(self, answer: FetchResponse, number: int) -> None:
        """Tell the followers what came for them; those that were named and are not told of, that there is no news.

        An error always is told: who is not told of was heard, and accepted. But who was told nothing in this session,
        or an error last, waits on: a leader that accepts it says where its log stands, and one whose epoch has yet to
        begin says so then. The leader reads a partition from where the last request that named it asked, at the latest
        this one: what it found for an earlier question is old.
        """
        unconfirmed = {key: one for key, one in self._unconfirmed.items() if one.named_in <= number}
        for key in unconfirmed:
            del self._unconfirmed[key]
        appended_bytes = 0
        session = self._session
        for topic in answer.responses:
            for row in topic.partitions:
                if number < self._began_in:
                    return  # another session began meanwhile, in which whoever waits is named again
                followed = session.get((topic.topic_id, row.partition_index))
                if followed is None:
                    continue
                if row.error_code:
                    followed.high_watermark, followed.log_start_offset, followed.answered_in = None, None, 0
                    followed.was_refused = True
                elif number >= followed.answered_in:
                    followed.high_watermark, followed.log_start_offset = row.high_watermark, row.log_start_offset
                    followed.answered_in = number
                unconfirmed.pop((topic.topic_id, row.partition_index), None)
                if followed.named_in > number:
                    continue
                if self._wanted.get(followed.following) is followed.records_request:
                    self._answered(followed.following)
                    appended_bytes += self._deliver(followed, row)
                appended_bytes += BYTES_PER_ROW
                if appended_bytes >= YIELD_BYTES:
                    appended_bytes = 0
                    await asyncio.sleep(0)
        async for followed in in_turns(unconfirmed.values()):
            if number < self._began_in:
                return
            if followed.answered_in and self._wanted.get(followed.following) is followed.records_request:
                self._answered(followed.following)
                followed.following.on_fetched(
                    followed.records_request.number,
                    high_watermark=followed.high_watermark,
                    log_start_offset=followed.log_start_offset,
                )

    def _deliver(self, followed: _Followed, row: PartitionData) -> int:
        """Tell a follower. Returns how many bytes it has written."""
        following, number = followed.following, followed.records_request.number
        if row.records and self._throttle.covers(following.partition.topic_partition):
            self._throttle.record(len(row.records))
        if row.error_code:
            following.on_refused(number, Code(row.error_code))
            return 0
        diverging = row.diverging_epoch
        records = cast(Buffer, row.records or b"")
        is_put_off = following.on_fetched(
            number,
            records=records,
            high_watermark=row.high_watermark if row.high_watermark >= 0 else None,
            log_start_offset=row.log_start_offset if row.log_start_offset >= 0 else None,
            diverging=None
            if diverging is None
            else EpochEntry(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
        )
        return 0 if is_put_off else len(records)


def _key(following: FollowerDriver) -> _Key:
    return following.partition.topic_id, following.partition.topic_partition.partition
