"""The controller's journal at one node, over the metadata log that the quorum keeps.

Every node has one: it replays what is committed, and publishes it, for that is what its broker lives on. The node that
leads the quorum has the active one: a decision is appended at once, counts when the quorum has committed it, is then
published, and only then answered.

Kafka: `QuorumController`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Clock
from tidelog.controller import (
    LOG_TRANSACTIONS,
    ControllerState,
    LostReplica,
    PartitionScan,
    in_portions,
    leaves_pending_changes,
)
from tidelog.controller.values import FirstMetadata
from tidelog.journal import Decision, Journal, LongDecision
from tidelog.metadata import MetadataDraft, MetadataImage
from tidelog.metadata.difference import records_between
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from tidelog.server.quorum.forwarded_attempts import LatestAttempts
from tidelog.server.quorum.metadata_log import MetadataBatch
from tidelog.server.storage.metadata_snapshots import Snapshot
from tidelog.server.tasks import Tasks
from tidelog.server.transport.turns import in_turns

logger = logging.getLogger("tidelog.server.controller")

RECORDS_PER_TURN = 1_000
"""Of a snapshot: each takes some microseconds."""
PORTIONS_AT_ONCE_MAX = 10
"""Of one decision, on their way to a majority: some hundred milliseconds of work for a node that has fallen behind."""

R = TypeVar("R")

OnCommitted = Callable[[tuple[object, ...], Offset, bool], None]


class AppendsDecisions(Protocol):
    """The quorum, as its leader's controller knows it."""

    @property
    def tasks(self) -> Tasks: ...

    def append_decision(self, records: tuple[object, ...], leader_epoch: LeaderEpoch) -> Offset:
        """Append one batch, to be committed in time. Returns its first offset. Whatever it raises ends the node."""
        ...

    def give_up(self, error: Exception) -> None:
        """What was written cannot be relied on: nothing may be built on it."""
        ...


class ControllerHost(Protocol):
    """A node, as what works for its controller while that is active knows it."""

    @property
    def controller(self) -> Controller:
        """Raises KafkaError: NOT_CONTROLLER while it is not active here."""
        ...

    @property
    def active_controller(self) -> Controller | None: ...


class ControllerListener:
    """Works for the controller of its node while that is active; each overrides what it wants to know."""

    def on_active(self) -> None:
        """This node has the active controller, which has decided nothing yet."""

    def on_leader_disconnected(self, node_id: BrokerId) -> None:
        """The connection closed on which this node followed the active controller."""

    def on_resigned(self) -> None:
        """This node has the active controller no more."""

    def on_replicas_lost(self, lost: list[LostReplica], metadata: MetadataView, metadata_offset: Offset) -> None:
        """By what the active controller just committed, up to `metadata_offset` (inclusive), some lost replicas."""


class Controller:
    """See the module.

    Args:
        state: empty.
        quorum: appends what is decided.
        on_committed: told of committed records, with the exclusive end offset that they bring the metadata to, and
            whether some are not of the log, but what a snapshot makes different.
        clock: tells when an entry of the account of losses is opened.
        listeners: told in their order.
        first_metadata: for a metadata log that says nothing yet; None for the levels of this release.

    Attributes:
        unclean_elections: how many were committed while this was the active one.
        latest_attempts: of brokers that forward requests.
    """

    def __init__(
        self,
        state: ControllerState,
        quorum: AppendsDecisions,
        *,
        on_committed: OnCommitted,
        clock: Clock,
        listeners: Sequence[ControllerListener] = (),
        first_metadata: FirstMetadata | None = None,
    ) -> None:
        self.journal: Journal[ControllerState] = Journal(
            state, not_active=Code.NOT_CONTROLLER, transactions=LOG_TRANSACTIONS
        )
        self.unclean_elections = 0
        self.latest_attempts = LatestAttempts()
        self._quorum = quorum
        self._on_committed = on_committed
        self._clock = clock
        self._listeners = listeners
        self._first_metadata = first_metadata
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._published_end_offset = Offset(0)
        self._is_advancing = False
        self._has_loaded = False
        self._has_pending_changes = False
        self._pending_changes_task: asyncio.Task[None] | None = None
        self._whole_appended: asyncio.Event | None = None

    @property
    def is_active(self) -> bool:
        return self.journal.is_active

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        """The epoch in which this is the active controller."""
        return self.journal.leader_epoch

    async def request(self, decide: Callable[[ControllerState], Decision[Any]]) -> Any:
        """Decide, and return the reply once all that it tells of is committed.

        Raises:
            KafkaError: the refusal that `decide` raised, or NOT_CONTROLLER.
        """
        await self._turn()
        state = self.journal.speculative
        decision = Decision.over(state, decide)
        whole = in_portions(state.metadata, state.settings, decision)
        return await (self._begin(decision) if whole is None else self._begin_whole(whole))

    async def request_whole(self, decide: Callable[[ControllerState], LongDecision[R]]) -> R:
        """As `request`, for what is worked out in portions, and all of which counts or none.

        It is one batch where that holds one portion, else a transaction of the metadata log (KIP-868): nobody sees
        anything of it before its end is committed, and nothing else is decided before its end is appended.
        """
        await self._turn()
        try:
            whole = decide(self.journal.speculative)
        except KafkaError as error:
            return cast(R, await self._begin(Decision((), error)))
        return cast(R, await self._begin_whole(whole))

    async def request_in_portions(
        self, decide: Callable[[ControllerState], Decision[R]], *, has_more: Callable[[R], bool]
    ) -> R:
        """Decide a portion after the other, and return the last reply once all that it tells of is committed.

        A portion waits for a turn of everybody else, and not for the commit of the one before, but that few are on
        their way at a time: so the quorum can follow, and others do not wait behind much.

        Args:
            decide: the next portion.
            has_more: whether there is one behind that of a reply, which may not be committed yet.

        Raises:
            KafkaError: as `request`. What was decided before may be committed, or not.
        """
        on_their_way: deque[asyncio.Future[R]] = deque()
        try:
            while True:
                await self._turn()
                decision = Decision.over(self.journal.speculative, decide)
                on_their_way.append(self._begin(decision))
                if isinstance(decision.reply, KafkaError) or not has_more(cast(R, decision.reply)):
                    break
                if len(on_their_way) > PORTIONS_AT_ONCE_MAX:
                    await on_their_way.popleft()
                await asyncio.sleep(0)
            while len(on_their_way) > 1:
                await on_their_way.popleft()
            return await on_their_way[0]
        finally:
            for future in on_their_way:
                if future.done() and not future.cancelled():
                    future.exception()  # the same for all; whoever asked is told once
                future.cancel()

    async def request_in_pieces(self, decides: Iterable[Callable[[ControllerState], Decision[Sequence[R]]]]) -> list[R]:
        """Decide the pieces of a request as `request_in_portions`. Returns their replies, joined in their order."""
        replies: list[R] = []
        rest = deque(decides)

        def decide(state: ControllerState) -> Decision[None]:
            decision = rest.popleft()(state)
            replies.extend(decision.reply)
            return Decision(decision.records, None)

        if rest:
            await self.request_in_portions(decide, has_more=lambda _: bool(rest))
        return replies

    def _begin(self, decision: Decision[object]) -> asyncio.Future[Any]:
        """Have it appended. Returns what is to come of it."""
        if decision.records:
            records = self.journal.speculative.accounted(decision.records, now_ms=self._clock.wall_ms())
            decision = replace(decision, records=records)
        ticket = self.journal.submit(decision)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self._advance()
        return future

    async def _turn(self) -> None:
        """Return once nothing that counts as a whole is half decided."""
        while self._whole_appended is not None:
            await self._whole_appended.wait()

    def _begin_whole(self, whole: LongDecision[Any]) -> asyncio.Future[Any]:
        """Have it appended, whatever becomes of who asked: half of it would keep all that follows from counting."""
        self._whole_appended = asyncio.Event()
        return asyncio.shield(self._quorum.tasks.share(self._append_whole(whole, self.journal.leader_epoch)))

    async def _append_whole(self, whole: LongDecision[Any], leader_epoch: LeaderEpoch | None) -> Any:
        held: tuple[object, ...] = ()  # a portion that may be the last one
        is_begun = False
        try:
            for portion in whole.portions:
                await asyncio.sleep(0)
                if self.journal.leader_epoch != leader_epoch:
                    raise refusal(Code.NOT_CONTROLLER)
                if not whole.is_divisible:
                    held += portion
                elif portion and held:
                    first = () if is_begun else (BeginTransactionRecord(),)
                    self._begin(Decision((*first, *held), None)).cancel()
                    held, is_begun = portion, True
                else:
                    held = held or portion
            if self.journal.leader_epoch != leader_epoch:
                raise refusal(Code.NOT_CONTROLLER)
            last = (EndTransactionRecord(),) if is_begun else ()
            future = self._begin(Decision((*held, *last), whole.reply))
        except KafkaError:
            raise
        except Exception as error:  # a bug of ours: the next controller ends what was begun
            self._quorum.give_up(error)
            raise refusal(Code.NOT_CONTROLLER) from error
        finally:
            if self._whole_appended is not None:
                self._whole_appended.set()
                self._whole_appended = None
        return await future

    def append_nothing(self) -> None:
        """One record more, which says nothing: that it is committed does."""
        self.journal.submit(Decision((NoOpRecord(),), None))
        self._advance()

    def image(self) -> MetadataImage:
        """The committed metadata, for a snapshot."""
        journal = self.journal
        return journal.committed.metadata.image(Offset(journal.committed_end_offset - 1))

    # What the quorum tells.

    def on_replayed(self, batch: MetadataBatch) -> None:
        """Committed, and written by another leader or before this one became active."""
        for index, record in enumerate(batch.records):
            self.journal.replay(record, Offset(batch.base_offset + index))
        self.journal.on_committed(batch.end_offset)

    async def on_snapshot(self, snapshot: Snapshot) -> None:
        """It takes the place of all that lies below its end; what differs from what is known is news as any other.

        One of nothing, which a directory was formatted with, only says who votes. Nothing may be replayed meanwhile.
        """
        if snapshot.snapshot_id.end_offset == 0:
            return
        draft = MetadataDraft(MetadataImage.empty())
        async for record in in_turns(snapshot.records, turn_size=RECORDS_PER_TURN):
            draft.apply(record)
        known = self.journal.committed.metadata.image(None)
        new_records = in_turns(records_between(known, draft.image(None)), turn_size=RECORDS_PER_TURN)
        self.journal.load([record async for record in new_records], snapshot.snapshot_id.end_offset)
        self._has_loaded = True
        self._advance()

    def on_committed(self, end_offset: Offset) -> None:
        """Everything below is committed, and all of it is known here."""
        self.journal.on_committed(end_offset)
        self._advance()

    def on_leading(self, leader_epoch: LeaderEpoch, end_offset: Offset) -> None:
        """This node leads, and all that came before it, its own first records included, is committed and known."""
        self.journal.become_active(leader_epoch, end_offset)
        if self.journal.is_in_transaction:
            logger.warning("the controller before this one left a decision half appended: nothing of it counts")
            self.journal.submit(Decision((AbortTransactionRecord(reason="its controller leads no more"),), None))
        self.journal.committed.lost = []
        self.journal.committed.unclean_elections = []
        for listener in self._listeners:
            listener.on_active()
        self.journal.submit(Decision.over(self.journal.speculative, self._decide_bootstrap))
        self._schedule_pending_changes()  # what the one before left to do
        self._advance()

    def on_control_appended(self, end_offset: Offset) -> None:
        """The quorum wrote of itself in between."""
        self.journal.skip_to(end_offset)

    def on_lost(self) -> None:
        """This node leads no more. Who waited is told so, and what was speculation is thrown away."""
        if self.journal.is_active:
            self.journal.resign()
            self.journal.committed.lost = None
            self.journal.committed.unclean_elections = None
            for listener in self._listeners:
                listener.on_resigned()
            self._advance()

    def on_leader_disconnected(self, node_id: BrokerId) -> None:
        """The connection closed on which this node followed its leader."""
        for listener in self._listeners:
            listener.on_leader_disconnected(node_id)

    # What to do about it.

    def _decide_bootstrap(self, state: ControllerState) -> Decision[None]:
        return state.decide_bootstrap(self._first_metadata)

    def _advance(self) -> None:
        """Carry out what the journal owes, in its order. Never within itself: an append may commit at once."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while True:
                ready, end_offset = self.journal.take_ready(), self.journal.committed_end_offset
                if not ready and end_offset == self._published_end_offset:
                    break
                for batch in ready.batches:
                    if any(map(leaves_pending_changes, batch.records)):
                        self._schedule_pending_changes()
                    try:
                        appended = self._quorum.append_decision(batch.records, batch.leader_epoch)
                        invariant(appended == batch.base_offset, "batch {} lies at {}", batch.base_offset, appended)
                    except Exception as error:  # of the disk or a bug of ours: the log is not what we go on from
                        self._quorum.give_up(error)
                        break
                if end_offset > self._published_end_offset:
                    self._published_end_offset = end_offset
                    has_loaded, self._has_loaded = self._has_loaded, False
                    self._on_committed(ready.committed, end_offset, has_loaded)
                    self._notify_replicas_lost(end_offset)
                    self._log_unclean_elections()
                for reply in ready.replies:
                    future = self._waiting.pop(reply.ticket, None)
                    if future is None or future.done():
                        continue
                    if isinstance(reply.outcome, KafkaError):
                        future.set_exception(reply.outcome)
                    else:
                        future.set_result(reply.outcome)
        finally:
            self._is_advancing = False

    def _schedule_pending_changes(self) -> None:
        """Have what decisions left to do be done, a portion after the other."""
        self._has_pending_changes = True
        if self._pending_changes_task is None:
            self._pending_changes_task = self._quorum.tasks.start(self._run_pending_changes())

    async def _run_pending_changes(self) -> None:
        try:
            while self._has_pending_changes and self.is_active:
                self._has_pending_changes = False
                count = await self._run_pass(PartitionScan(self.journal.speculative.metadata))
                if count:
                    logger.info("%d more partitions have a leader, or other replicas in sync", count)
        except KafkaError as error:
            logger.debug("this node settles nothing more: %s", error)  # the next controller begins with it
        except Exception as error:  # a bug of ours: another controller is to try
            self._quorum.give_up(error)
        finally:
            self._pending_changes_task = None
        if self._has_pending_changes and self.is_active:  # in another leadership
            self._schedule_pending_changes()

    async def _run_pass(self, scan: PartitionScan) -> int:
        """Decide what is left to do in one pass over the partitions. Returns of how many."""
        count = 0

        def decide(state: ControllerState) -> Decision[int]:
            nonlocal count
            decision = state.decide_pending_changes(scan)
            count += decision.reply
            return decision

        await self.request_in_portions(decide, has_more=lambda _: not scan.is_done)
        return count

    def _notify_replicas_lost(self, end_offset: Offset) -> None:
        lost = self.journal.committed.lost
        if lost:
            self.journal.committed.lost = []
            for listener in self._listeners:
                listener.on_replicas_lost(lost, self.journal.committed.metadata, Offset(end_offset - 1))

    def _log_unclean_elections(self) -> None:
        """Say of each what it is, and count it. The leader says which records it has."""
        elections = self.journal.committed.unclean_elections
        if not elections:
            return
        self.journal.committed.unclean_elections = []
        self.unclean_elections += len(elections)
        for each in elections:
            logger.warning(
                "%s: UNCLEAN ELECTION: broker %d leads from leader epoch %d on, ordered by %s. It was not in sync; "
                "the last that were are %s. Committed records that it lacks are lost; broker %d logs which offsets "
                "it has",
                *(each.topic_partition, each.leader, each.leader_epoch, each.ordered_by),
                *(list(each.was_in_sync) or "not known", each.leader),
            )
