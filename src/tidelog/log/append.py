"""What a batch must satisfy before a leader, or a follower, appends it; and the stamps that a leader gives it.

Kafka: `LogValidator`.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

from tidelog.base.errors import (
    Code,
    CorruptLogError,
    DecompressedTooLargeError,
    InvalidRecordsError,
    KafkaError,
    MalformedBatchError,
    refusal,
)
from tidelog.base.ids import LeaderEpoch, Offset, TopicPartition
from tidelog.base.ports import Buffer
from tidelog.log.config import LogConfig
from tidelog.log.placed import Placed
from tidelog.log.producer_state import ProducerStates, RememberedBatch
from tidelog.log.verification import VerificationGuard
from tidelog.records._choose import KERNEL_IS_COMPILED, kernel
from tidelog.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    as_sent,
    check_crc,
    read_header,
    read_plain_batch,
    read_records,
    recompress_batch,
    split_batches,
    split_whole_batches,
    stamp,
    validate_batch,
)
from tidelog.records.compression import COMPRESSION_NAMES, may_take_long
from tidelog.records.control import read_end_transaction_marker
from tidelog.records.crc32c import crc32c
from tidelog.records.header import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_START,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
)
from tidelog.records.lineage import LeaderEpochLineage

Origin = Literal["client", "coordinator", "controller"]
"""Who made a batch: `client` is anyone out there; the others are this node's own parts, which may write markers."""

DECOMPRESSED_SIZE_FACTOR = 64
DECOMPRESSED_SIZE_BYTES_MIN = 64 * 1024 * 1024
"""A compressed batch may grow to 64 times what `max.message.bytes` allows, at least to 64 MiB; beyond is a bomb."""

AT_ONCE_BYTES_MAX = (256 if KERNEL_IS_COMPILED else 16) * 1024
"""What compressed records may grow to on the event loop: to walk them takes two milliseconds at most, or three without
a compiled kernel. Two kilobytes may grow to 64 MiB.
"""
AT_ONCE_RECORDS_MAX = 1_000
"""That are read one by one there."""

RECORD_ERRORS_MAX = 1_000
"""So many records are named when a batch is refused for them: a compressed one may hold millions, and no answer can."""


class TakesLongError(Exception):
    """Nothing was done: the check takes longer than the event loop has time for, and belongs on another thread."""


class AppendResult(NamedTuple):
    """The outcome of an append."""

    first_offset: Offset
    last_offset: Offset
    """Inclusive."""
    log_append_time_ms: int | None
    """The timestamp that all the records were given, if the topic uses the leader's clock."""
    log_start_offset: Offset
    is_duplicate: bool
    """Nothing was appended: the offsets are those of the original. It is committed once its original is."""
    batch_count: int
    record_count: int
    size_bytes: int


class Accepted(NamedTuple):
    """A batch that may be appended."""

    position: int
    """In the buffer it came in."""
    header: BatchHeader
    """As it came."""
    max_timestamp: int
    """Of its records, once appended."""
    log_append_time: int | None
    """To be stamped; None leaves the records' own timestamps."""
    corrected_timestamp: int | None
    """To be stamped as the header's largest timestamp, which says otherwise."""


class Checked(NamedTuple):
    """Batches that a leader may append."""

    rules: AppendRules
    """By which. Under others they are to be checked again."""
    batches: memoryview
    """In the codec of the topic."""
    accepted: list[Accepted]


# As the constructors of these tuples, at a third of their price; there is one of each in every append.
_make_result = partial(tuple.__new__, AppendResult)
_make_header = partial(tuple.__new__, BatchHeader)
_make_accepted = partial(tuple.__new__, Accepted)
_make_checked = partial(tuple.__new__, Checked)
_make_placed = partial(tuple.__new__, Placed)

read_plain = kernel.read_plain


class AppendRules:
    """The checks of one log, under one configuration."""

    __slots__ = (
        "_after_ms_max",
        "_batch_size_bytes_max",
        "_before_ms_max",
        "_compression_level",
        "_decompressed_size_bytes_max",
        "_is_compacted",
        "_is_plain",
        "_message_size_bytes_max",
        "_segment_size_bytes",
        "_topic_partition",
        "_uses_log_append_time",
        "codec",
    )

    def __init__(self, topic_partition: TopicPartition, config: LogConfig) -> None:
        self._topic_partition = topic_partition
        self._message_size_bytes_max = config.message_size_bytes_max
        self._segment_size_bytes = config.segment_size_bytes
        self._batch_size_bytes_max = config.batch_size_bytes_max
        self.codec = config.compression_codec
        """Of the topic, in which batches are to be; None leaves them as they come."""
        self._compression_level = config.compression_level
        self._is_compacted = config.is_compacted
        self._uses_log_append_time = config.message_timestamp_type == "LogAppendTime"
        self._before_ms_max = config.message_timestamp_before_ms_max
        self._after_ms_max = config.message_timestamp_after_ms_max
        self._is_plain = (
            KERNEL_IS_COMPILED
            and self.codec is None
            and not self._is_compacted
            and not self._uses_log_append_time
            and self._before_ms_max is None
        )
        self._decompressed_size_bytes_max = max(
            DECOMPRESSED_SIZE_FACTOR * config.message_size_bytes_max, DECOMPRESSED_SIZE_BYTES_MIN
        )

    def check_plain(self, batch: memoryview, now_ms: int) -> Checked | None:
        """As `check_for_leader`, of one batch of a client, where all is as with most batches of most topics.

        Returns:
            None where that, and `check_is_one`, have to look at it: then nothing is known of it.
        """
        if not self._is_plain or len(batch) > self._batch_size_bytes_max:
            return None
        found = read_plain(batch)
        if found is None:
            return None
        values, max_timestamp, _ = found
        base_offset, _, _, _, crc, attributes, _, _, newest, producer_id, epoch, sequence, _ = values
        if base_offset or attributes or (producer_id >= 0 and (epoch < 0 or sequence < 0)):
            return None
        if crc32c(batch[CRC_START:]) != crc:
            return None
        after_ms_max = self._after_ms_max
        if after_ms_max is not None and max_timestamp - now_ms > after_ms_max:
            return None
        corrected_timestamp = None if max_timestamp == newest else max_timestamp
        accepted = _make_accepted((0, _make_header(values), max_timestamp, None, corrected_timestamp))
        return _make_checked((self, batch, [accepted]))

    def check_for_leader(self, batches: memoryview, *, now_ms: int, origin: Origin, at_once: bool = False) -> Checked:
        """Check batches that are to be given offsets, and bring them into the codec of the topic. On any thread.

        Args:
            batches: whole batches, one at least, and nothing else.
            now_ms: since 1970, for the timestamps.
            origin: who made them.
            at_once: on the event loop, which has no time for batches that grow large, or are compressed anew.

        Raises:
            KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD, INVALID_TIMESTAMP,
                MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE, naming what disagrees.
            TakesLongError: `at_once`, and that is not possible.
        """
        plain = None
        if self.codec is None and len(batches) <= self._batch_size_bytes_max:
            plain = read_plain_batch(batches)
        if plain is not None:
            header, max_timestamp, keyless_count = plain
            accepted = [self._accept(batches, 0, header, max_timestamp, keyless_count, now_ms, origin, at_once)]
            return _make_checked((self, batches, accepted))
        try:
            header = read_header(batches)
            found = None if header.size_bytes == len(batches) else split_batches(batches)
        except MalformedBatchError as error:
            raise as_sent(error, batches) from None
        if found is None:
            accepted = [self._check(batches, 0, header, now_ms, origin, at_once=at_once)]
        else:
            accepted = [
                self._check(batches, position, header, now_ms, origin, at_once=at_once) for position, header in found
            ]
        if self.codec is not None:
            batches, accepted = self._compress_anew(batches, accepted, at_once)
        return _make_checked((self, batches, accepted))

    def _check(
        self, batches: memoryview, position: int, header: BatchHeader, now_ms: int, origin: Origin, *, at_once: bool
    ) -> Accepted:
        # What the cluster writes for itself cannot be sent in smaller pieces.
        if header.size_bytes > self._batch_size_bytes_max and origin == "client":
            raise self._too_large(header.size_bytes)
        size_bytes_max = self._decompressed_size_bytes_max
        codec = header.attributes & COMPRESSION_MASK
        if at_once and codec:
            if may_take_long(codec, batches[position + BATCH_OVERHEAD : position + header.size_bytes]):
                raise TakesLongError
            size_bytes_max = min(size_bytes_max, AT_ONCE_BYTES_MAX)
        try:
            facts = validate_batch(batches, position, header, decompressed_size_bytes_max=size_bytes_max)
        except DecompressedTooLargeError:
            if at_once:
                raise TakesLongError from None
            raise
        max_timestamp, keyless_count = facts.max_timestamp, facts.keyless_record_count
        return self._accept(batches, position, header, max_timestamp, keyless_count, now_ms, origin, at_once)

    def _accept(  # noqa: PLR0917 - of each batch
        self,
        batches: memoryview,
        position: int,
        header: BatchHeader,
        max_timestamp: int,
        keyless_count: int,
        now_ms: int,
        origin: Origin,
        at_once: bool,
    ) -> Accepted:
        """Accept a batch that is what its header says, if the log takes such ones."""
        if origin == "client":  # whose header counts once its checksum is right
            if header[5] & ~COMPRESSION_MASK or header[0] or header[9] >= 0:
                self._check_client_header(header)
            if keyless_count and self._is_compacted:
                self._check_records(batches, position, header, now_ms, origin, at_once=at_once)
        if self._uses_log_append_time:
            return _make_accepted((position, header, now_ms, now_ms, None))
        after_ms_max = self._after_ms_max
        is_ahead = after_ms_max is not None and max_timestamp - now_ms > after_ms_max
        if is_ahead or self._before_ms_max is not None:
            self._check_records(batches, position, header, now_ms, origin, at_once=at_once)
        corrected_timestamp = None if max_timestamp == header[8] else max_timestamp
        return _make_accepted((position, header, max_timestamp, None, corrected_timestamp))

    def _compress_anew(
        self, batches: memoryview, accepted: list[Accepted], at_once: bool
    ) -> tuple[memoryview, list[Accepted]]:
        """Bring batches into the codec of the topic, which is not None; markers of transactions stay as they are.

        Returns:
            What to append, and where in it each batch is: what came in, if all of it was in that codec.

        Raises:
            KafkaError: MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE, of what a batch grew to.
        """
        codec = self.codec
        assert codec is not None
        if all(each.header.compression == codec or each.header.is_control for each in accepted):
            return batches, accepted
        if at_once:
            raise TakesLongError
        anew = bytearray()
        replaced = []
        for each in accepted:
            header = each.header
            batch: Buffer = batches[each.position : each.position + header.size_bytes]
            if header.compression != codec and not header.is_control:
                batch = recompress_batch(
                    batch,
                    header,
                    codec,
                    level=self._compression_level,
                    decompressed_size_bytes_max=self._decompressed_size_bytes_max,
                )
                header = read_header(batch)
                if header.size_bytes > self._batch_size_bytes_max:
                    raise self._too_large(header.size_bytes, f", as {COMPRESSION_NAMES[codec]} made it,")
            replaced.append(each._replace(position=len(anew), header=header))
            anew += batch
        return memoryview(anew), replaced

    def at(self, accepted: list[Accepted], now_ms: int) -> list[Accepted]:
        """What was checked before, appended now: the leader's clock gives the time of the append."""
        if not self._uses_log_append_time:
            return accepted
        return [each._replace(max_timestamp=now_ms, log_append_time=now_ms) for each in accepted]

    def _too_large(self, size_bytes: int, made: str = "") -> KafkaError:
        what = f"{self._topic_partition}: a batch of {size_bytes} bytes{made} is larger than"
        if size_bytes > self._message_size_bytes_max:
            return refusal(Code.MESSAGE_TOO_LARGE, f"{what} max.message.bytes={self._message_size_bytes_max} allows")
        return refusal(Code.RECORD_LIST_TOO_LARGE, f"{what} a segment, segment.bytes={self._segment_size_bytes}")

    def _check_client_header(self, header: BatchHeader) -> None:
        attributes = header.attributes
        if header.base_offset:
            raise self._invalid(f"a producer's batch has base offset 0, not {header.base_offset}")
        if attributes & (CONTROL_FLAG | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | DELETE_HORIZON_FLAG):
            if attributes & CONTROL_FLAG:
                raise self._invalid("a client may not write control records")
            if attributes & DELETE_HORIZON_FLAG:
                raise self._invalid("a producer may not say when compaction removes the marks of deleted keys")
            if attributes & LOG_APPEND_TIME_FLAG:
                why = "a producer may not set LogAppendTime itself"
                indexes = range(min(header.record_count, RECORD_ERRORS_MAX))
                errors = [(index, why) for index in indexes]
                raise self._refused(Code.INVALID_TIMESTAMP, header.record_count, errors)
            if header.producer_id < 0:
                raise self._invalid("a transactional batch needs a producer id")
        if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
            raise self._invalid(
                f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence "
                f"{header.base_sequence}; neither may be negative"
            )

    def _check_records(
        self, batches: memoryview, position: int, header: BatchHeader, now_ms: int, origin: Origin, *, at_once: bool
    ) -> None:
        """Name those at fault. They are read a second time, which is rare, rather than all of them measured always."""
        if at_once and header.record_count > AT_ONCE_RECORDS_MAX:
            raise TakesLongError
        needs_key = self._is_compacted and origin == "client"
        records = read_records(batches, position, header, decompressed_size_bytes_max=self._decompressed_size_bytes_max)
        code, count = Code.INVALID_RECORD, 0
        errors: list[tuple[int, str]] = []
        for index, record in enumerate(records):
            if needs_key and record.key is None:
                fault: str | None = "it has no key, and a compacted topic needs one"
            else:
                fault = self._wrong_time(record.timestamp, now_ms)
                if fault is not None:
                    code = Code.INVALID_TIMESTAMP
            if fault is not None:
                count += 1
                if count <= RECORD_ERRORS_MAX:
                    errors.append((index, fault))
        if errors:
            raise self._refused(code, count, errors)

    def _wrong_time(self, timestamp: int, now_ms: int) -> str | None:
        """Why a record may not have this one; -1 is none at all."""
        if timestamp < 0 or self._uses_log_append_time:
            return None
        key, limit_ms, away_ms = "message.timestamp.after.max.ms", self._after_ms_max, timestamp - now_ms
        if away_ms < 0:
            key, limit_ms = "message.timestamp.before.max.ms", self._before_ms_max
        if limit_ms is None or abs(away_ms) <= limit_ms:
            return None
        return f"timestamp {timestamp} is {away_ms:+} ms from the leader's clock; {key}={limit_ms}"

    def _refused(self, code: Code, count: int, errors: list[tuple[int, str]]) -> InvalidRecordsError:
        index, fault = errors[0]
        what = f"{self._topic_partition}: {count} records are refused; of the first, at {index}: {fault}"
        return InvalidRecordsError(what, code=code, record_errors=errors)

    def _invalid(self, what: str) -> KafkaError:
        return refusal(Code.INVALID_RECORD, f"{self._topic_partition}: {what}")

    def answer_duplicate(
        self, originals: list[RememberedBatch], accepted: list[Accepted], log_start_offset: Offset
    ) -> AppendResult:
        """What to answer when all batches of a call were appended before: where that was."""
        return AppendResult(
            originals[0].first_offset,
            originals[-1].last_offset,
            originals[0].timestamp if self._uses_log_append_time else None,
            log_start_offset,
            True,
            len(accepted),
            sum(each.header.record_count for each in accepted),
            sum(each.header.size_bytes for each in accepted),
        )

    def check_for_follower(
        self, batches: memoryview, *, log_end_offset: Offset, lineage: LeaderEpochLineage
    ) -> list[Accepted]:
        """Check batches that a leader appended: their CRCs, and that offsets and leader epochs go on from here.

        Args:
            batches: as a fetch returned them; a last batch that is cut short is left out.
            log_end_offset: of this log.
            lineage: of this log. It may be ahead, where what it is about found no room, or was noted beforehand.

        Raises:
            CorruptLogError: offsets or epochs go back: what was fetched is not the continuation of this log.
            KafkaError: CORRUPT_MESSAGE or UNSUPPORTED_FOR_MESSAGE_FORMAT.
        """
        accepted = []
        next_offset: int = log_end_offset
        latest = lineage.epoch_at(Offset(log_end_offset - 1))
        leader_epoch: int = -1 if latest is None else latest
        for position, header in split_whole_batches(batches):
            if header.base_offset < next_offset:
                raise CorruptLogError(
                    f"{self._topic_partition}: a fetched batch starts at offset {header.base_offset}, "
                    f"the log goes on at {next_offset}"
                )
            if header.leader_epoch < leader_epoch:
                raise CorruptLogError(
                    f"{self._topic_partition}: the batch fetched at offset {header.base_offset} is of leader epoch "
                    f"{header.leader_epoch}, the log below it of {leader_epoch}"
                )
            check_crc(batches, position, header)
            next_offset = header.next_offset
            leader_epoch = header.leader_epoch
            accepted.append(Accepted(position, header, header.max_timestamp, None, None))
        return accepted


def find_originals(
    producers: ProducerStates,
    accepted: list[Accepted],
    topic_partition: TopicPartition,
    verification_guard: VerificationGuard | None,
) -> list[RememberedBatch] | None:
    """Check the sequence numbers of a client's batches, and their transactions.

    Returns:
        None if they may be appended; if all of them were appended before, what is remembered of that.

    Raises:
        KafkaError: see `ProducerState.check` and `Verifications`; and DUPLICATE_SEQUENCE_NUMBER if some were appended
            before, some not: no answer could say where they are.
    """
    if len(accepted) == 1:
        header = accepted[0].header
        original = producers.check(header, verification_guard) if header.producer_id >= 0 else None
        return None if original is None else [original]
    answers = producers.check_all((each.header for each in accepted), verification_guard)
    originals = [answer for answer in answers if answer is not None]
    if originals and len(originals) != len(answers):
        raise refusal(
            Code.DUPLICATE_SEQUENCE_NUMBER,
            f"{topic_partition}: {len(originals)} of {len(answers)} batches were appended before; "
            "send new ones by themselves",
        )
    return originals or None


def check_coordinators(
    producers: ProducerStates,
    batches: memoryview,
    accepted: list[Accepted],
    *,
    verification_guard: VerificationGuard | None,
    transaction_version: int,
) -> None:
    """Check what a coordinator writes for producers: markers, and offsets that are committed in a transaction.

    Raises:
        KafkaError: see `ProducerStates.check_marker` and `check_unsequenced`.
    """
    for position, header, *_ in accepted:
        if header.producer_id < 0:
            continue
        if not header.is_control:
            producers.check_unsequenced(header, verification_guard)
            continue
        for record in read_records(batches, position, header):
            marker = read_end_transaction_marker(record)
            if marker is not None:
                producers.check_marker(
                    header.producer_id,
                    header.producer_epoch,
                    marker.coordinator_epoch,
                    transaction_version=transaction_version,
                )


def appended(placed: list[Placed], log_append_time_ms: int | None, log_start_offset: Offset) -> AppendResult:
    """What came of an append of these."""
    position, header, _, last_offset, _ = placed[-1]
    count = len(placed)
    return _make_result(
        (
            placed[0].base_offset,
            last_offset,
            log_append_time_ms,
            log_start_offset,
            False,
            count,
            header.record_count if count == 1 else sum(each.header.record_count for each in placed),
            position + header.size_bytes,
        )
    )


def stamp_all(
    view: memoryview, accepted: list[Accepted], first_offset: Offset, leader_epoch: LeaderEpoch
) -> list[Placed]:
    """Give batches the offsets from `first_offset` on, and the leader epoch, in place."""
    placed = []
    offset: int = first_offset
    for position, header, max_timestamp, log_append_time, corrected_timestamp in accepted:
        stamp(view, position, offset, leader_epoch, log_append_time=log_append_time, max_timestamp=corrected_timestamp)
        last_offset = offset + header.last_offset_delta
        placed.append(_make_placed((position, header, offset, last_offset, max_timestamp)))
        offset = last_offset + 1
    return placed
