"""The `quorum-state` file: the epoch that a voter is in, and for whom it voted. Kafka's own format, JSON on one line.

It is written before the voter acts on what it says: a voter that forgot its epoch could lead, or vote, in it twice.
Two keys are ours, and stand there only where they say yes: `tidelogHasRecords` and `tidelogIsLost`.

Kafka: `FileQuorumStateStore`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import BrokerId, LeaderEpoch, parse_uuid, uuid_text

DATA_VERSION = 1
NO_ID = -1
HAS_RECORDS = "tidelogHasRecords"
IS_LOST = "tidelogIsLost"
INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a voter must not forget.

    Attributes:
        leader_epoch: the latest that it knows of.
        leader_id: who leads in it, if known.
        voted_id: for whom it voted in it, if it did.
        voted_directory_id: the directory of that candidate, if it was named.
        has_records: whether there is a record in its log, or was one, or is about to be.
        is_lost: whether its log, or what this file said before, is lost; until it has recovered it does not vote.
    """

    leader_epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    voted_id: BrokerId | None = None
    voted_directory_id: UUID | None = None
    has_records: bool = False
    is_lost: bool = False


NOTHING_VOTED = QuorumState(LeaderEpoch(0))
"""Of a voter that has just been made."""


def format_quorum_state(state: QuorumState) -> bytes:
    """The contents of the file."""
    fields: dict[str, object] = {
        "leaderId": NO_ID if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": NO_ID if state.voted_id is None else state.voted_id,
        "votedDirectoryId": uuid_text(state.voted_directory_id or UUID(int=0)),
        "data_version": DATA_VERSION,
    }
    fields |= {name: True for name, is_so in ((HAS_RECORDS, state.has_records), (IS_LOST, state.is_lost)) if is_so}
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def parse_quorum_state(data: bytes, *, path: str = "quorum-state") -> QuorumState:
    """The inverse of `format_quorum_state`; reads data version 0 (Kafka before 3.9) too.

    Raises:
        CorruptLogError: names the file and what is wrong. A voter without its state must not start: it would not know
            whether it voted already.
    """
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise CorruptLogError(f"{path}: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CorruptLogError(f"{path}: a JSON object is expected")
    version = fields.get("data_version")
    if version not in range(DATA_VERSION + 1):
        raise CorruptLogError(
            f"{path}: data_version {version!r} is not known to this release, which reads up to {DATA_VERSION}"
        )
    directory = fields.get("votedDirectoryId")
    try:
        directory_id = None if directory is None else parse_uuid(directory)
    except (ValueError, TypeError) as error:
        raise CorruptLogError(f"{path}: votedDirectoryId: {error}") from error
    voted_id = _number(fields, "votedId", path)
    return QuorumState(
        leader_epoch=LeaderEpoch(_number(fields, "leaderEpoch", path, minimum=0)),
        leader_id=_id(_number(fields, "leaderId", path)),
        voted_id=_id(voted_id),
        voted_directory_id=directory_id if directory_id is not None and directory_id.int else None,
        has_records=_flag(fields, HAS_RECORDS, path),
        is_lost=_flag(fields, IS_LOST, path),
    )


def _number(fields: dict[str, object], name: str, path: str, *, minimum: int = NO_ID) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= INT32_MAX:
        raise CorruptLogError(f"{path}: {name} is {value!r}; a whole number from {minimum} to {INT32_MAX} is expected")
    return value


def _flag(fields: dict[str, object], name: str, path: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise CorruptLogError(f"{path}: {name} is {value!r}; true or false is expected")
    return value


def _id(number: int) -> BrokerId | None:
    return None if number == NO_ID else BrokerId(number)
