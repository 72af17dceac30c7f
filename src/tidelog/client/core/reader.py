"""One assigned partition: where its reader stands, what it needs next, and what it may deliver (KIP-320).

    LOOKING_UP   --offset found-->  FETCHING  <--intact--  VALIDATING
    (no position, or a reset)          |                    ^   |
                                       +--new leader epoch--+   +--truncated--> reset, or STOPPED with the error

A request carries the `generation` it was made in. Whatever moves the position by force, and every new leader epoch,
starts another generation: answers of an older one are dropped, and so is what was fetched and not delivered yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from tidelog.base.errors import (
    Code,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TidelogError,
    TopicRecreatedError,
    UnknownTopicError,
)
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, Position, TopicId, TopicPartition, uuid_text
from tidelog.client.core.fetched import FetchedRange
from tidelog.client.core.metadata_cache import CachedPartition
from tidelog.client.core.needs import EARLIEST, LATEST, FetchFrom, LookUp, Need, NeedsMetadata, Validate
from tidelog.client.core.positions import (
    UNDEFINED_MS_MAX,
    Divergence,
    EpochEnd,
    EpochEndNeeded,
    Intact,
    PositionStatus,
    Truncated,
    ValidationRule,
    first_place,
    judge,
    place_after_truncation,
    place_in_range,
)
from tidelog.client.core.values import PartitionStatistics, PositionReset, ResetPolicy, ResetReason
from tidelog.records.batch import INT64_MAX

DOUBTS_MAX = 5
"""So often may a leader call an offset out of range that it has just vouched for."""

FETCHES_AHEAD_MAX = 2
"""Answers held of one partition before they are delivered."""


class Phase(Enum):
    AWAITING = "waiting to be told where to start"
    LOOKING_UP = "looking up an offset"
    VALIDATING = "asking whether the log was truncated"
    FETCHING = "fetching"
    STOPPED = "stopped"


class PartitionReader:
    """See the module.

    Args:
        topic_partition: which one.
        policy: what to do when the position is lost.
        fetch_size_bytes: to ask for at once; grows where a batch needs it.
        retry_delay_ms: how long to wait after so many failures in a row.
        on_reset: told when a position moves by policy.
        unknown_ms_max: so long brokers may know nothing of the partition before that is an error; None for ever.
        begins_at: where the policy goes by a duration: the time at which it begins, in ms since 1970.
        is_awaiting: whether `start` says where it starts, as the group has committed it.
        rule: what a leader's answer says of the position.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        policy: ResetPolicy,
        fetch_size_bytes: int,
        retry_delay_ms: Callable[[int], int],
        on_reset: Callable[[PositionReset], None],
        *,
        unknown_ms_max: int | None = None,
        begins_at: Callable[[], int] | None = None,
        is_awaiting: bool = False,
        rule: ValidationRule = judge,
    ) -> None:
        self.topic_partition = topic_partition
        self.phase = Phase.AWAITING if is_awaiting else Phase.LOOKING_UP
        self.error: TidelogError | None = None
        self.generation = 0
        self.in_flight: int | None = None  # the generation of the request under way
        self.standing: PositionStatus | None = None  # before the next record to deliver; None while it is looked up
        self.topic_id: TopicId | None = None
        self.leader_id: BrokerId | None = None
        self.leader_epoch: LeaderEpoch | None = None
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.high_watermark_regressions = 0
        self.truncations = 0
        self.held: deque[FetchedRange] = deque()
        self.not_before_ms = 0
        self._policy = policy
        self._fetch_size_bytes = fetch_size_bytes
        self._fetch_end_offset = INT64_MAX  # no fetch begins there, or behind
        self._retry_delay_ms = retry_delay_ms
        self._on_reset = on_reset
        self._rule = rule
        self._failures = 0
        self._last_timestamp: int | None = None
        self._begins_at = begins_at
        self._unknown_ms_max = unknown_ms_max
        self._unknown_since_ms: int | None = None
        self._is_unknown = False  # that is why it stopped
        self._look_up: LookUp | None = None  # None: where a reader starts
        self._time_looked_up: LookUp | None = None  # while the end is looked up, since there is nothing so late
        self._end_before_time: PositionStatus | None = None
        self._found_before: Offset | None = None  # an offset that may be before the start, which is looked up
        self._requested_epoch: LeaderEpoch | None = None
        self._undefined_since_ms: int | None = None
        self._doubts = 0
        self._out_of_range = False  # Fetch said so of the offset; looking up the log start will say which side
        self._times_grown = 0  # the log had grown up to the offset by the time of the look-up
        self._range_start: Offset | None = None  # it is outside, and that is told once the end is known too
        self._fetched_from: BrokerId | None = None  # asked by the last Fetch
        self._preferred: BrokerId | None = None  # to read from, as the leader said
        self._preferred_until_ms = 0
        if policy is ResetPolicy.NONE and not is_awaiting:
            self._stop(_no_position(topic_partition))

    # What it says of itself.
    @property
    def offset(self) -> Offset | None:
        """Of the next record to deliver; None while that is being looked up."""
        return None if self.standing is None else self.standing.offset

    @property
    def position(self) -> Position | None:
        """Where the caller stands; None while that is being looked up."""
        return None if self.standing is None else self.standing.position

    def statistics(self, offset: Offset | None, *, is_committed_only: bool) -> PartitionStatistics:
        """How it stands; the lag is that of a reader of decided transactions alone, or of all that is committed.

        Args:
            offset: where the caller stands.
        """
        end_offset = self.last_stable_offset if is_committed_only else self.high_watermark
        return PartitionStatistics(
            offset,
            self.log_start_offset,
            self.high_watermark,
            self.last_stable_offset,
            None if offset is None or end_offset is None else max(end_offset - offset, 0),
            self.high_watermark_regressions,
            self.truncations,
        )

    @property
    def is_idle(self) -> bool:
        """Whether no request of this generation is under way."""
        return self.in_flight != self.generation

    def is_before(self, end: int) -> bool:
        """Whether there is something to deliver, or to be told, before an offset."""
        return self.phase is not Phase.FETCHING or self.standing is None or self.standing.offset < end

    def need(self, now_ms: int) -> Need | None:
        """What to ask for next; None while there is nothing to ask, or it is not time yet."""
        if self.phase is Phase.STOPPED:
            return NeedsMetadata() if self._is_unknown else None
        if self.phase is Phase.AWAITING:
            return None
        if now_ms < self.not_before_ms or not self.is_idle:
            return None
        if self.leader_id is None:
            return NeedsMetadata()
        if self.phase is Phase.LOOKING_UP:
            if self._out_of_range:
                return LookUp(EARLIEST if self._range_start is None else LATEST)
            return self._look_up or self._first_place()
        if self.standing is None:
            return None
        if self.phase is Phase.VALIDATING:
            if self.standing.leader_epoch is None or self.leader_epoch is None:
                self.phase = Phase.FETCHING  # there is nothing to compare, or nobody who could
            elif self._is_behind():
                return NeedsMetadata()
            else:
                return Validate(self.standing.leader_epoch if self._requested_epoch is None else self._requested_epoch)
        end = self.held[-1].next_offset if self.held else self.standing.offset
        if len(self.held) >= FETCHES_AHEAD_MAX or end >= self._fetch_end_offset:
            return None
        if now_ms >= self._preferred_until_ms:
            self._preferred = None
        self._fetched_from = self.leader_id if self._preferred is None else self._preferred
        return FetchFrom(Offset(end), self._fetch_size_bytes, self._fetched_from)

    # What the caller wants.
    def start(self, place: Position | LookUp | None) -> None:
        """Start there, unless the caller has sought since. None: nothing was committed, and the policy says where."""
        if self.phase is not Phase.AWAITING:
            return
        if isinstance(place, Position):
            self.seek(Offset(place.offset), None if place.leader_epoch is None else LeaderEpoch(place.leader_epoch))
        elif place is None and self._policy is ResetPolicy.NONE:
            self._stop(_no_position(self.topic_partition))
        else:
            self._go_to(place or self._first_place())

    def seek(self, offset: Offset, leader_epoch: LeaderEpoch | None, fetch_end_offset: int | None = None) -> None:
        """Go there. With the epoch of the record before, the log is asked first whether it still has that record."""
        self._new_generation()
        self._fetch_end_offset = INT64_MAX if fetch_end_offset is None else fetch_end_offset
        self._go_to(PositionStatus.stored(offset, leader_epoch))
        if leader_epoch is not None:
            self.phase = Phase.VALIDATING

    def seek_by_time(self, timestamp: int, before: int = 0) -> None:
        """Go to the first record at or after a time, to EARLIEST or to LATEST; or to so many offsets before that."""
        self._new_generation()
        self._go_to(LookUp(timestamp, before))

    # What happened.
    def on_metadata(
        self, topic_id: TopicId | None, view: CachedPartition | None, now_ms: int, *, refusal: Code | None = None
    ) -> None:
        """The cluster's metadata, whether it changed or not.

        Args:
            refusal: why the partition is not in it; None where that is not known.
        """
        if topic_id is not None and topic_id != self.topic_id:
            old, self.topic_id = self.topic_id, topic_id
            if old is not None:
                self.leader_epoch = None
                self._on_recreated(old, topic_id)
        if view is None:
            self.leader_id = None
            self._on_unknown(refusal, now_ms)
            return
        self._unknown_since_ms = None
        if self._is_unknown:  # it was made since, or made anew, or may be read by now
            self._new_generation()
            self._go_to(self.standing or self._look_up or self._first_place())
            if self._has_epoch:
                self.phase = Phase.VALIDATING
        self.leader_id = view.leader_id
        if view.leader_epoch is not None and (self.leader_epoch is None or view.leader_epoch > self.leader_epoch):
            is_first = self.leader_epoch is None
            self.leader_epoch = view.leader_epoch
            if not is_first:
                self._on_new_leader_epoch()
        if self.phase is Phase.VALIDATING and self._is_behind():
            self._on_undefined(now_ms)

    def on_preferred(self, generation: int, replica: BrokerId, until_ms: int) -> None:
        """The leader would have a replica nearby asked for records (KIP-392). It alone says what became of the log."""
        if self._is_current(generation, Phase.FETCHING):
            self._preferred, self._preferred_until_ms = replica, until_ms

    def on_failure(self, generation: int, now_ms: int) -> None:
        """A request got no answer, or a refusal that passes. The next one is the leader's to answer."""
        self._preferred = None
        if generation == self.in_flight:
            self.in_flight = None
        if generation == self.generation:
            self._failures += 1
            self.not_before_ms = now_ms + self._retry_delay_ms(self._failures)

    def on_refused(self, generation: int, error: KafkaError, now_ms: int) -> None:
        """A request was answered by an error code, other than a fetch outside the log."""
        self.on_failure(generation, now_ms)
        if generation == self.generation and not error.retriable:
            self._stop(error)

    def on_looked_up(
        self, generation: int, offset: Offset | None, leader_epoch: LeaderEpoch | None, now_ms: int
    ) -> None:
        """ListOffsets answered; an offset of None: no record is at or after the time."""
        if not self._is_current(generation, Phase.LOOKING_UP):
            return
        if self._out_of_range:
            self._out_of_range = False
            if self._range_start is None:
                self._on_log_start(offset or Offset(0), now_ms)
            else:
                self._on_range(self._range_start, offset or self._range_start, now_ms)
        elif self._found_before is not None:  # the start, before which there is nothing
            self._go_to(PositionStatus.looked_up(max(self._found_before, offset or Offset(0)), None))
        elif self._look_up is not None and self._look_up.before and offset is not None:
            self._found_before = Offset(max(offset - self._look_up.before, 0))
            self._look_up = LookUp(EARLIEST)
        elif self._time_looked_up is not None:  # the end: what comes behind it is not missed by another look-up
            self._look_up, self._time_looked_up = self._time_looked_up, None
            self._end_before_time = PositionStatus.looked_up(offset or Offset(0), leader_epoch)
        elif offset is not None:
            self._go_to(PositionStatus.looked_up(offset, leader_epoch))
        elif self._end_before_time is not None:
            self._go_to(self._end_before_time)
        else:  # nothing is so late, or was
            self._time_looked_up = self._look_up or self._first_place()
            self._look_up = LookUp(LATEST)

    def on_epoch_end(self, generation: int, requested: LeaderEpoch, answer: EpochEnd, now_ms: int) -> None:
        """OffsetForLeaderEpoch answered."""
        if not self._is_current(generation, Phase.VALIDATING):
            return
        assert self.standing is not None
        verdict = self._rule(self.standing, requested, answer)
        if isinstance(verdict, Intact):
            self._undefined_since_ms = None
            if self._out_of_range:
                self._doubts += 1
                self.phase = Phase.LOOKING_UP
            else:
                self.phase = Phase.FETCHING
        elif isinstance(verdict, EpochEndNeeded):
            self._requested_epoch = verdict.leader_epoch
        elif isinstance(verdict, Truncated):
            self._on_truncated(verdict.divergence)
        else:
            self._on_undefined(now_ms)

    def on_fetched(self, generation: int, fetched: FetchedRange) -> None:
        """Apply the answer to a fetch."""
        end = self.held[-1].next_offset if self.held else self.offset
        if not self._is_current(generation, Phase.FETCHING) or fetched.fetch_offset != end:
            return
        if self._fetched_from == self.leader_id:  # a follower's lag behind
            if self.high_watermark is not None and fetched.high_watermark < self.high_watermark:
                self.high_watermark_regressions += 1
            self.high_watermark, self.last_stable_offset = fetched.high_watermark, fetched.last_stable_offset
        else:
            self.high_watermark = max(self.high_watermark or 0, fetched.high_watermark)
            self.last_stable_offset = max(self.last_stable_offset or 0, fetched.last_stable_offset)
        self.log_start_offset = fetched.log_start_offset
        if fetched.is_cut_short:
            self._fetch_size_bytes = min(self._fetch_size_bytes * 2, 0x7FFFFFFF)
        if self._goes_back(fetched):
            self._on_truncated(None)
        elif fetched.next_offset > fetched.fetch_offset:
            self._doubts = self._times_grown = 0
            self.held.append(fetched)

    def on_out_of_range(self, generation: int) -> None:
        """Fetch answered OFFSET_OUT_OF_RANGE. Why, is found out before anything is done about it.

        A follower says so too of what it lacks itself, which is no loss. Only the leader answers what is asked next.
        """
        if not self._is_current(generation, Phase.FETCHING):
            return
        self._preferred = None
        self.held.clear()
        is_comparable = self._has_epoch and self.leader_epoch is not None
        self.phase = Phase.VALIDATING if is_comparable else Phase.LOOKING_UP
        self._requested_epoch = None
        self._out_of_range = True

    def on_diverging(self, generation: int) -> None:
        """Fetch answered that the log parts from ours below the offset: find out where."""
        if self._is_current(generation, Phase.FETCHING):
            self._on_new_leader_epoch()

    def stop(self, generation: int, error: TidelogError) -> None:
        """Nothing more can be read until the caller seeks: a batch is damaged, for instance."""
        if generation == self.generation:
            self._stop(error)

    # What was delivered.
    def on_delivered(self, next_offset: int, timestamp: int) -> None:
        """The caller has all records below `next_offset`; the last of them had this time."""
        assert self.standing is not None
        self.standing.on_read(self.held[0].epochs, next_offset)
        self._last_timestamp = timestamp

    def on_all_delivered(self) -> None:
        """Everything of the oldest answer held was delivered: what it hid counts as read."""
        fetched = self.held.popleft()
        assert self.standing is not None
        self.standing.on_read(fetched.epochs, fetched.next_offset)

    def give_back(self, place: PositionStatus, topic_id: TopicId | None) -> bool:
        """The caller did not take what was delivered from `place` on: it is delivered again.

        If the log was truncated meanwhile, it is asked anew whether the caller has anything of what was lost.

        Args:
            topic_id: of the topic that it was delivered from.

        Returns:
            Whether it is; not if the position lies before that by now, or in another topic of this name.
        """
        if self.standing is None or place.offset >= self.standing.offset or topic_id != self.topic_id:
            return False
        self._new_generation()
        self._last_timestamp = place.last_timestamp
        self._go_to(place)
        if place.leader_epoch is not None:
            self.phase = Phase.VALIDATING
        return True

    def place(self) -> PositionStatus:
        """A copy of where it stands, with the time of the record before."""
        assert self.standing is not None
        return replace(self.standing.clone(), last_timestamp=self._last_timestamp)

    # How.
    def _is_current(self, generation: int, phase: Phase) -> bool:
        if generation == self.in_flight:
            self.in_flight = None
        if generation != self.generation or self.phase is not phase:
            return False
        self._failures = 0
        return True

    def _new_generation(self) -> None:
        self.generation += 1
        self.error = None
        self._is_unknown = False
        self._requested_epoch = None
        self._undefined_since_ms = None
        self._doubts = 0
        self._times_grown = 0
        self._out_of_range = False
        self._range_start = None
        self._time_looked_up = None
        self.not_before_ms = 0
        self._fetch_end_offset = INT64_MAX
        self.held.clear()

    def _go_to(self, place: PositionStatus | LookUp) -> None:
        self._end_before_time = self._found_before = None
        if isinstance(place, LookUp):
            self.standing = None
            self.phase = Phase.LOOKING_UP
            self._look_up = place
        else:
            self._look_up = None
            self.standing = place
            self.phase = Phase.FETCHING

    def _first_place(self) -> LookUp:
        return first_place(self._policy, self._begins_at)

    @property
    def _has_epoch(self) -> bool:
        return self.standing is not None and self.standing.leader_epoch is not None

    def _on_new_leader_epoch(self) -> None:
        """A new leader: what the old one said of records not delivered yet no longer counts, nor does its silence."""
        self.generation += 1
        self.not_before_ms = 0
        self._requested_epoch = None
        self._preferred = None
        self.held.clear()
        if self.phase is Phase.FETCHING and self._has_epoch:
            self.phase = Phase.VALIDATING

    def _is_behind(self) -> bool:
        """Whether what we stand on is of a leader that the metadata has not heard of yet."""
        return self.standing is not None and self.standing.is_ahead_of(self.leader_epoch)

    def _goes_back(self, fetched: FetchedRange) -> bool:
        """Whether these records are of an older epoch than those before them, which no log ever was.

        Leaders that fence (Fetch 9 and later) never come to this.
        """
        if not fetched.epochs:
            return False
        before = None if self.position is None else self.position.leader_epoch
        for held in self.held:
            before = held.epochs[-1][0] if held.epochs else before
        return before is not None and fetched.epochs[0][0] < before

    def _on_unknown(self, refusal: Code | None, now_ms: int) -> None:
        """Brokers do not have the partition. One that is being made, or a broker that hears of it later, passes."""
        if refusal is None or self.phase in (Phase.STOPPED, Phase.AWAITING):
            return
        if not refusal.retriable:
            what = f"{self.topic_partition}: {refusal.meaning} ({refusal.name})"
            self._stop(KafkaError(what, code=refusal))
            self._is_unknown = True
        elif refusal is Code.UNKNOWN_TOPIC_OR_PARTITION and self._unknown_ms_max is not None:
            if self._unknown_since_ms is None:
                self._unknown_since_ms = now_ms
            elif now_ms - self._unknown_since_ms >= self._unknown_ms_max:
                what = f"{self.topic_partition}: for {self._unknown_ms_max} ms brokers have known no such partition"
                self._stop(UnknownTopicError(f"{what}: create it, or assign another"))
                self._is_unknown = True

    def _on_undefined(self, now_ms: int) -> None:
        """Nobody can tell, this time, whether the log was truncated. In the end, that is told."""
        if self._undefined_since_ms is None:
            self._undefined_since_ms = now_ms
        if now_ms - self._undefined_since_ms >= UNDEFINED_MS_MAX:
            self._on_truncated(None)
            return
        self._failures += 1
        self.not_before_ms = now_ms + self._retry_delay_ms(self._failures)

    def _on_truncated(self, divergence: Divergence | None) -> None:
        standing = self.standing
        assert standing is not None
        self.truncations += 1
        divergent_offset = None if divergence is None else divergence.offset
        place = place_after_truncation(self._policy, standing, divergence, self._last_timestamp, self._first_place)
        error = LogTruncatedError(
            self.topic_partition,
            position=standing.offset,
            divergent_offset=divergent_offset,
            leader_epoch=standing.position.leader_epoch,
            divergent_leader_epoch=place.position.leader_epoch if isinstance(place, PositionStatus) else None,
            log_start_offset=self.log_start_offset,
        )
        self._on_lost(standing.position, ResetReason.TRUNCATED, error, divergent_offset, place)

    def _on_log_start(self, log_start_offset: Offset, now_ms: int) -> None:
        """The position is outside the log; now we know on which side."""
        standing = self.standing
        assert standing is not None
        self.log_start_offset = log_start_offset
        if standing.offset >= log_start_offset and self.leader_id != self._fetched_from:
            self.phase = Phase.FETCHING  # who said so leads no more, or never did: the leader has not been asked
        elif standing.offset >= log_start_offset and 0 < self._doubts < DOUBTS_MAX:
            self.phase = Phase.FETCHING  # it has vouched for the offset, so it was not itself yet, or is now
            self.not_before_ms = now_ms + self._retry_delay_ms(self._doubts)
        elif standing.offset >= log_start_offset and standing.was_in_log:
            self._on_truncated(None)  # the log reached here once
        elif self._policy is ResetPolicy.NONE:
            self._out_of_range = True  # the error names both ends
            self._range_start = log_start_offset
        else:
            self._on_range(log_start_offset, None, now_ms)

    def _on_range(self, start: Offset, end: Offset | None, now_ms: int) -> None:
        """The position is outside of what there is, unless the log has grown up to it meanwhile."""
        standing = self.standing
        assert standing is not None
        self._range_start = None
        if end is not None and start <= standing.offset <= end and self._times_grown < DOUBTS_MAX:
            self._times_grown += 1
            self.phase = Phase.FETCHING
            self.not_before_ms = now_ms + self._retry_delay_ms(self._times_grown)
            return
        error = OffsetOutOfRangeError(
            self.topic_partition, offset=standing.offset, log_start_offset=start, end_offset=end
        )
        place = place_in_range(self._policy, standing, start, self._last_timestamp, self._first_place)
        self._on_lost(standing.position, ResetReason.OUT_OF_RANGE, error, None, place)

    def _on_recreated(self, old: TopicId, new: TopicId) -> None:
        self.high_watermark = self.last_stable_offset = self.log_start_offset = None  # of another log
        position = self.position
        if position is None:
            self.generation += 1
            return
        error = TopicRecreatedError(
            self.topic_partition,
            position=position.offset,
            old_topic_id=uuid_text(old),
            new_topic_id=uuid_text(new),
        )
        # Whatever the policy: all of the new topic is new.
        self._on_lost(position, ResetReason.RECREATED, error, Offset(0), LookUp(EARLIEST))

    def _on_lost(
        self,
        position: Position,
        reason: ResetReason,
        error: TidelogError,
        divergent_offset: Offset | None,
        place: PositionStatus | LookUp,
    ) -> None:
        """The position is lost, and that is told: by the error if there is no policy, else by the reset to `place`."""
        self._new_generation()
        if self._policy is ResetPolicy.NONE:
            self._stop(error)
            return
        self._go_to(place)
        self._on_reset(PositionReset(self.topic_partition, reason, position, divergent_offset, self.offset))

    def _stop(self, error: TidelogError) -> None:
        self.generation += 1
        self.held.clear()
        self.phase = Phase.STOPPED
        self.error = error.about(self.topic_partition)


def _no_position(topic_partition: TopicPartition) -> KafkaError:
    return KafkaError(
        f"{topic_partition}: there is no position, and auto_offset_reset='none' gives none: seek, or say where to start"
        ", as in assign(partitions, start='earliest')",
        code=Code.OFFSET_OUT_OF_RANGE,
    )
