"""Every error in one hierarchy, and every Kafka error code in one table.

Three kinds, three fates: a refusal (`KafkaError`) becomes a code on the wire; a bug (`InvariantBrokenError`)
stops the partition or the process; the world's failures (`DiskError`, `NetworkError`) are raised in `io/` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Self

from tidelog.base.ids import Position, TopicPartition


class TidelogError(Exception):
    """The root of everything that Tidelog raises on purpose. Its text says what, where and what to do.

    Attributes:
        partition: the one that a client's error concerns; None if it is not about one.
    """

    partition: TopicPartition | None = None

    def about(self, partition: TopicPartition) -> Self:
        """Say which partition it concerns."""
        self.partition = partition
        return self


class InvariantBrokenError(TidelogError):
    """Our bug. Never caught to continue."""


class MalformedMessageError(TidelogError):
    """Bytes that are not what their frame claims: a length, count or varint that cannot be. Close the connection."""


class TooManyElementsError(MalformedMessageError):
    """A request lists more than is read of one, or than is read where it stands."""


class DiskError(TidelogError):
    """The disk refused. The partitions on it go offline; the rest serves on."""

    def __init__(self, path: str, reason: str, *, errno: int | None = None) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.errno = errno


class NetworkError(TidelogError):
    """The peer is out of reach or hung up. Whether to retry is the caller's to say."""


class AuthenticationError(TidelogError):
    """This client did not accept the broker, or the broker did not accept this client.

    Trying again does not help, so the client connects to no broker any more, and raises this wherever it needs one:
    remove the cause, then make a new client. Kafka: `AuthenticationException`.
    """


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed: for a certificate or a name, or because one side speaks TLS and the other does not.

    Kafka: `SslAuthenticationException`.
    """


class SaslAuthenticationError(AuthenticationError):
    """The SASL exchange failed: wrong credentials, or a mechanism that the broker does not offer. Names both.

    Kafka: `SaslAuthenticationException`, `UnsupportedSaslMechanismException`.
    """


class CorruptLogError(TidelogError):
    """A file of the log holds something that was never written so. Names the file and the position or offset."""


class LostLogError(TidelogError):
    """A replica had a log in one of this node's directories, and it is gone, or the end of it is.

    Nothing takes its place before the controller knows. Says what is missing, and where.
    """


class ConfigError(TidelogError):
    """A setting that is unknown, unsupported or out of range. Names the key and what is allowed."""


class ConsistencyContextError(TidelogError, ValueError):
    """Values, bytes or JSON that are no consistency context (KIP-1243). Says what is wrong with them."""


class MissingExtraError(TidelogError, ImportError):
    """An optional part is not installed. Names the `pip install` that brings it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'tidelog[{extra}]'")
        self.extra = extra


class Code(IntEnum):
    """Kafka's error codes: number, whether a retry can help, and what it means to the one who reads it."""

    retriable: bool
    meaning: str

    def __new__(cls, number: int, retriable: bool = False, meaning: str = "") -> Code:
        # Each member says all three; the defaults are for type checkers, to whom `Code(74)` looks like this call.
        code = int.__new__(cls, number)
        code._value_ = number
        code.retriable = retriable
        code.meaning = meaning
        return code

    @classmethod
    def _missing_(cls, value: object) -> Code:
        """A code that only newer releases know, of a node that runs one: for us, the server's own trouble."""
        return cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = -1, False, "The server failed in a way it did not expect; its log says how."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside the range of the log."
    CORRUPT_MESSAGE = 2, True, "A batch fails its checksum, or is damaged otherwise."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "There is no such topic or partition, or not on this broker."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker is not the leader, or not the replica, that was asked for."
    REQUEST_TIMED_OUT = 7, True, "The request was not done within its time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available here."
    MESSAGE_TOO_LARGE = 10, False, "A batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller moved on to a newer epoch."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata beside an offset is larger than offset.metadata.max.bytes."
    NETWORK_EXCEPTION = 13, True, "The server hung up before it answered."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "There is no coordinator at the moment."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name is not legal, or the operation is not allowed on it."
    RECORD_LIST_TOO_LARGE = 18, False, "The batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than min.insync.replicas asks for."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, but to fewer in-sync replicas than asked for."
    INVALID_REQUIRED_ACKS = 21, False, "acks is not one of -1, 0 and 1."
    ILLEGAL_GENERATION = 22, False, "The group has another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member's protocols do not fit the group's."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session time-out lies outside the broker's limits."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The commit would be larger than a batch may be."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The principal may not use this topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "The principal may not use this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The principal may not do this to the cluster."
    INVALID_TIMESTAMP = 32, False, "A timestamp lies outside what the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The broker does not serve this version of the API."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "A configuration key or value is not valid."
    NOT_CONTROLLER = 41, True, "This node is not the active controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The stored message format does not support this."
    POLICY_VIOLATION = 44, False, "The request breaks a policy of this cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was written already."
    INVALID_PRODUCER_EPOCH = 47, False, "A newer producer of this id exists."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction time-out is larger than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, True, "An earlier transaction of this id is still being ended."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The transaction coordinator was fenced by a newer one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "The principal may not use this transactional id."
    SECURITY_DISABLED = 54, False, "Security features are off on this cluster."
    OPERATION_NOT_ATTEMPTED = 55, False, "The operation was not tried; another part of the request failed first."
    KAFKA_STORAGE_ERROR = 56, True, "The disk under this partition failed; see the server's log."
    LOG_DIR_NOT_FOUND = 57, False, "The log directory is not one of the broker's."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials were not accepted."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker has no state for this producer id any more."
    REASSIGNMENT_IN_PROGRESS = 60, False, "A reassignment of this partition is under way."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal is neither owner nor renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Token requests are not allowed on this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "The principal may not use this token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "This kind of principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session: start a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session's epoch is not the next one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of the name the client uses."
    TOPIC_DELETION_DISABLED = 73, False, "delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, True, "The sender's leader epoch is older than the leader's: refresh metadata."
    UNKNOWN_LEADER_EPOCH = 75, True, "The sender's leader epoch is newer than this broker's: try again."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "This version of the API cannot carry that compression."
    STALE_BROKER_EPOCH = 77, False, "The broker registered anew since."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader's high watermark has not caught up yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id that this answer carries."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as it may."
    FENCED_INSTANCE_ID = 82, False, "Another member took this static instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica may be elected."
    ELECTION_NOT_NEEDED = 84, True, "The leader is the one asked for already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No reassignment of this partition is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to this topic; its offsets cannot be deleted."
    INVALID_RECORD = 87, False, "A record breaks a rule of its topic, or its batch is malformed."
    UNSTABLE_OFFSET_COMMIT = 88, True, "A transaction holds offsets that are not decided yet."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota is exceeded: wait, then try again."
    PRODUCER_FENCED = 90, False, "A newer producer has this transactional id."
    RESOURCE_NOT_FOUND = 91, False, "There is no such resource."
    DUPLICATE_RESOURCE = 92, False, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, False, "The voters differ from those the quorum knows."
    INVALID_UPDATE_VERSION = 95, False, "The state changed since the version given."
    FEATURE_UPDATE_FAILED = 96, False, "The feature could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies beyond the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "There is no topic of this id, or not on this broker."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "Another live broker has this id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The log's topic id differs from the one in the request."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic ids and names."
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the ISR."
    NEW_LEADER_ELECTED = 108, False, "The change made another replica the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset lies in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch is older than the group's: rejoin."
    UNRELEASED_INSTANCE_ID = 111, False, "The static instance id is still in use."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group's members do not share this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is stale: try again after the next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not known."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is too large."
    INVALID_REGISTRATION = 119, False, "The controller's registration is not valid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction can only be aborted."
    INVALID_RECORD_STATE = 121, False, "The record is not in a state that allows this."
    SHARE_SESSION_NOT_FOUND = 122, True, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session's epoch is not the next one."
    FENCED_STATE_EPOCH = 124, False, "The share state's epoch is older than the coordinator's."
    INVALID_VOTER_KEY = 125, False, "The voter's key differs from the one expected."
    DUPLICATE_VOTER = 126, False, "The voter is one already."
    VOTER_NOT_FOUND = 127, False, "There is no such voter."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "Start again from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology's epoch is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "There are as many share sessions as there may be."
    STALE_METADATA = 134, True, "This broker's metadata is older than the token; provisional number (KIP-1243)."


MESSAGE_LENGTH_MAX = 1_000
"""Characters. What was sent is quoted in it, and may have been long; an answer takes 32,767 bytes."""


class KafkaError(TidelogError):
    """A refusal: raised before any state changed, and answered with its code."""

    code: Code = Code.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "", *, code: Code | None = None) -> None:
        if code is not None:
            self.code = code
        if len(message) > MESSAGE_LENGTH_MAX:
            message = f"{message[: MESSAGE_LENGTH_MAX // 2]} … {message[-MESSAGE_LENGTH_MAX // 2 :]}"
        super().__init__(message or self.code.meaning)

    @property
    def retriable(self) -> bool:
        return self.code.retriable


def refusal(code: Code, message: str = "") -> KafkaError:
    """A `KafkaError` of a code that needs no class of its own. `message` is for the log and for new clients."""
    return KafkaError(message, code=code)


class FencedLeaderEpochError(KafkaError):
    """The sender missed an election. Carries the newer epoch so that it can catch up (KIP-320)."""

    code = Code.FENCED_LEADER_EPOCH

    def __init__(self, partition: str, *, sent_epoch: int, leader_epoch: int) -> None:
        super().__init__(f"{partition}: sent leader epoch {sent_epoch}, the leader is at {leader_epoch}")
        self.leader_epoch = leader_epoch


class UnknownLeaderEpochError(KafkaError):
    """The sender knows of an election that this broker has not heard of yet (KIP-320)."""

    code = Code.UNKNOWN_LEADER_EPOCH

    def __init__(self, partition: str, *, sent_epoch: int, leader_epoch: int) -> None:
        super().__init__(f"{partition}: sent leader epoch {sent_epoch}, this broker is at {leader_epoch}")
        self.leader_epoch = leader_epoch


class OffsetOutOfRangeError(KafkaError):
    """The offset is outside of the log.

    Attributes:
        partition: of which topic and partition.
        offset: that was asked for.
        log_start_offset, end_offset: what there is, from inclusive to exclusive; None where it is not known.
    """

    code = Code.OFFSET_OUT_OF_RANGE
    partition: TopicPartition

    def __init__(
        self, partition: TopicPartition, *, offset: int, log_start_offset: int | None, end_offset: int | None
    ) -> None:
        super().__init__(f"{partition}: offset {offset} is outside [{log_start_offset}, {end_offset}]")
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset

    @property
    def seek_to(self) -> Position:
        """The nearest offset that there is: for `Consumer.seek`. What retention removed lies before it."""
        if self.end_offset is not None and self.offset > self.end_offset:
            return Position(self.end_offset, None)
        return Position(self.log_start_offset or 0, None)


class LogTruncatedError(OffsetOutOfRangeError):
    """Records that this reader had read, or stood past, are gone from the log (KIP-320).

    Raised by the consumer when no reset policy is set, and by the Spark source under `onTruncation=fail`. Nothing was
    skipped: undo what was derived from the records at and above `seek_to`, and seek there.
    Kafka: `LogTruncationException`.

    Attributes:
        position: where the reader stood; as `offset`.
        leader_epoch: of the record before it; None if none was read.
        divergent_offset: the first offset at which the log differs from what was read; None where that cannot be told.
        divergent_leader_epoch: of the record before that, which both have: `seek` with it, and another truncation
            below is told as well. None where it is not known.
    """

    divergent_leader_epoch: int | None = None

    def __init__(
        self,
        partition: TopicPartition,
        *,
        position: int,
        divergent_offset: int | None,
        leader_epoch: int | None,
        divergent_leader_epoch: int | None = None,
        log_start_offset: int | None = None,
        end_offset: int | None = None,
    ) -> None:
        where = "at an offset that cannot be told" if divergent_offset is None else f"from offset {divergent_offset} on"
        self._set(
            f"{partition}: the log was truncated {where}; the reader stood at {position}"
            + (f", after a record of leader epoch {leader_epoch}" if leader_epoch is not None else "")
            + ". Undo what came from the lost records, then seek there.",
            partition,
            position=position,
            divergent_offset=divergent_offset,
            leader_epoch=leader_epoch,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
        )
        self.divergent_leader_epoch = divergent_leader_epoch

    def _set(
        self,
        message: str,
        partition: TopicPartition,
        *,
        position: int,
        divergent_offset: int | None,
        leader_epoch: int | None,
        log_start_offset: int | None = None,
        end_offset: int | None = None,
    ) -> None:
        """What all its kinds have in common. The message may be long: programs read what is in it."""
        TidelogError.__init__(self, message)
        self.partition = partition
        self.offset = self.position = position
        self.divergent_offset = divergent_offset
        self.leader_epoch = leader_epoch
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset

    @property
    def seek_to(self) -> Position:
        """Where the log parts from what was read, for `Consumer.seek`; where that cannot be told, the log's start."""
        if self.divergent_offset is None:
            return Position(self.log_start_offset or 0, None)
        return Position(self.divergent_offset, self.divergent_leader_epoch)


class TopicRecreatedError(LogTruncatedError):
    """The topic was deleted and made anew: the reader's position belongs to a log that is gone (its id differs).

    Nothing of the new topic was read. Undo what came from the old one, then seek within the new one, from its start.

    Attributes:
        old_topic_id, new_topic_id: as Kafka prints them.
    """

    def __init__(self, partition: TopicPartition, *, position: int, old_topic_id: str, new_topic_id: str) -> None:
        self._set(
            f"{partition}: the topic was recreated (its id was {old_topic_id}, and is {new_topic_id}); the reader stood"
            f" at {position} of the old one. Undo what came from it, then seek to the beginning of the new one.",
            partition,
            position=position,
            divergent_offset=0,
            leader_epoch=None,
        )
        self.old_topic_id = old_topic_id
        self.new_topic_id = new_topic_id


class CommitFailedError(KafkaError):
    """Offsets were not committed: the consumer is not, or not any more, a member of the group in the way it believes.

    Kafka: `CommitFailedException`.
    """

    code = Code.UNKNOWN_MEMBER_ID


class WakeupError(TidelogError):
    """Another thread, or task, called `wakeup` on the consumer that was waiting. Nothing was read.

    Kafka: `WakeupException`.
    """


class MalformedBatchError(KafkaError):
    """A record batch whose bytes contradict each other. Nothing of it was stored, and nothing of it can be read.

    Carries `position`, the byte within the buffer (within the records, once they are decompressed) at which it showed.
    """

    code = Code.INVALID_RECORD

    def __init__(self, message: str, *, position: int, code: Code = Code.INVALID_RECORD) -> None:
        super().__init__(message, code=code)
        self.position = position


class DecompressedTooLargeError(MalformedBatchError):
    """Compressed records that grow beyond the limit of whoever reads them."""


class InvalidRecordsError(KafkaError):
    """Some records of a batch may not be stored, and so the whole batch was not (KIP-467).

    Carries their places in the batch, from 0, each with its fault, so that the producer can tell its user whose fault
    it was. The list may be shorter than the batch has such records.
    """

    code = Code.INVALID_RECORD

    def __init__(
        self, message: str, *, record_errors: Sequence[tuple[int, str]], code: Code = Code.INVALID_RECORD
    ) -> None:
        super().__init__(message, code=code)
        self.record_errors = tuple(record_errors)


class RecordsLostError(TidelogError):
    """Records that were acknowledged to this producer are gone from the log, as its sequence numbers or offsets show.

    Carries the partition and the range of acknowledged offsets that may be affected: [first_offset, last_offset],
    either of them None where it cannot be told. Send those records again, with a new producer, if they matter.
    """

    partition: TopicPartition

    def __init__(
        self, partition: TopicPartition, *, first_offset: int | None, last_offset: int | None, why: str
    ) -> None:
        first = "" if first_offset is None else f", from offset {first_offset} on"
        last = "" if last_offset is None else f", up to offset {last_offset}"
        super().__init__(f"{partition}: acknowledged records were lost{first}{last}: {why}")
        self.partition = partition
        self.first_offset = first_offset
        self.last_offset = last_offset


class RecordDeserializationError(TidelogError):
    """A deserializer did not accept a record's key or value. What it raised is the `__cause__`.

    The records before it were delivered. To pass over it, `Consumer.seek` to `seek_to`.

    Attributes:
        partition, offset, leader_epoch: of the record.
        what: `key` or `value`.
    """

    partition: TopicPartition

    def __init__(
        self,
        partition: TopicPartition,
        *,
        offset: int,
        leader_epoch: int | None,
        what: str,
        why: BaseException,
        is_null: bool = False,
    ) -> None:
        null = f"; the {what} is a null, and tidelog.serialization.or_none({what}_deserializer) makes None of one"
        super().__init__(
            f"{partition}: offset {offset}: {what}_deserializer raised {type(why).__name__}: {why}"
            f"{null if is_null else ''}; to pass over the record, seek to the error's `seek_to`"
        )
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.what = what

    @property
    def seek_to(self) -> Position:
        """Behind the record, with its leader epoch: a truncation of it is told."""
        return Position(self.offset + 1, self.leader_epoch)


class ProducerFencedError(KafkaError):
    """Another producer took over the transactional id, or the coordinator aborted a transaction that was open too long.

    This producer writes nothing any more: close it. A program that is still wanted makes a new producer, and goes on
    from the last committed transaction. Kafka: `ProducerFencedException`.
    """

    code = Code.PRODUCER_FENCED

    def __init__(self, transactional_id: str, *, producer_id: int, producer_epoch: int, what_of_it: str) -> None:
        super().__init__(
            f"transactional id {transactional_id!r}: producer {producer_id} is fenced at epoch {producer_epoch}: a"
            " newer producer has taken the id over, or a transaction was open for longer than transaction_timeout_ms"
            f" and was aborted; {what_of_it}. Close this producer; to go on, make a new one, and read on from"
            " the last committed transaction"
        )
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class TransactionAbortableError(KafkaError):
    """The transaction cannot be committed: something that belongs to it failed, as the `__cause__` says.

    Abort it (`abort_transaction`; leaving a `with producer.transaction()` block does so), then do its work again.
    Kafka: `TransactionAbortableException`.
    """

    code = Code.TRANSACTION_ABORTABLE


class TransactionAbortedError(TidelogError):
    """A record was not delivered, because its transaction was aborted first. Kafka: `TransactionAbortedException`."""


class TimedOutError(TidelogError, TimeoutError):
    """Not done within the time that the caller gave. Says what was waited for, and the last reason for waiting."""


class UnsupportedVersionError(KafkaError):
    """The peer does not serve a version of an API that is needed here. Names the API, its versions, and the peer's."""

    code = Code.UNSUPPORTED_VERSION


class ClientClosedError(TidelogError):
    """The client was closed, by `close` or at the end of its `with` block: make a new one."""


class TopicAlreadyExistsError(KafkaError):
    """A topic of this name exists. Nothing was changed."""

    code = Code.TOPIC_ALREADY_EXISTS


class UnknownTopicError(KafkaError):
    """There is no such topic, or no such partition of it: brokers were asked often enough."""

    code = Code.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def retriable(self) -> bool:
        return False
