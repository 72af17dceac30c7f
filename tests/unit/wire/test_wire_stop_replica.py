"""StopReplica as it lies on the wire, version by version, written out by hand: no client's library knows it."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.base.errors import MalformedMessageError
from tidelog.wire import decode, encode
from tidelog.wire.messages.api_05_stop_replica import (
    ANY_EPOCH,
    DELETED_TOPIC_EPOCH,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)

CONTROLLER = "0000000300000007"  # its id, its epoch
BROKER_EPOCH = "0000000000000009"
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
STATES = "00000001000000050100"  # partition 1, leader epoch 5, to be deleted, no tags

REQUESTS = [
    (
        0,
        StopReplicaRequest(
            controller_id=3,
            controller_epoch=7,
            delete_partitions=True,
            ungrouped_partitions=[StopReplicaPartitionV0("ab", 1)],
        ),
        f"{CONTROLLER} 01 00000001 0002 6162 00000001",
    ),
    (
        1,
        StopReplicaRequest(
            controller_id=3, controller_epoch=7, broker_epoch=9, topics=[StopReplicaTopicV1("ab", [1, 2])]
        ),
        f"{CONTROLLER} {BROKER_EPOCH} 00 00000001 0002 6162 00000002 00000001 00000002",
    ),
    (
        2,
        StopReplicaRequest(
            controller_id=3, controller_epoch=7, broker_epoch=9, topics=[StopReplicaTopicV1("ab", [1, 2])]
        ),
        f"{CONTROLLER} {BROKER_EPOCH} 00 02 03 6162 03 00000001 00000002 00 00",
    ),
    (
        3,
        StopReplicaRequest(
            controller_id=3,
            controller_epoch=7,
            broker_epoch=9,
            topic_states=[StopReplicaTopicState("ab", [StopReplicaPartitionState(1, 5, True)])],
        ),
        f"{CONTROLLER} {BROKER_EPOCH} 02 03 6162 02 {STATES} 00 00",
    ),
    (
        3,
        StopReplicaRequest(
            controller_id=3,
            controller_epoch=7,
            broker_epoch=9,
            topic_states=[StopReplicaTopicState("ab", [StopReplicaPartitionState(1, 5, True)], TOPIC_ID)],
            metadata_offset=17,
        ),
        f"{CONTROLLER} {BROKER_EPOCH} 02 03 6162 02 {STATES}"
        f"01 904e 10 {TOPIC_ID.hex}"  # one tagged field: 10,000, of 16 bytes
        "01 914e 08 0000000000000011",  # and 10,001, of 8
    ),
    (
        4,
        StopReplicaRequest(
            controller_id=3,
            controller_epoch=7,
            is_kraft_controller=True,
            broker_epoch=9,
            topic_states=[StopReplicaTopicState("ab", [StopReplicaPartitionState(1, 5, True)])],
        ),
        f"00000003 01 00000007 {BROKER_EPOCH} 02 03 6162 02 {STATES} 00 00",
    ),
]


@pytest.mark.parametrize(("version", "request_", "written"), REQUESTS)
def test_requests_are_these_bytes(version: int, request_: StopReplicaRequest, written: str) -> None:
    raw = bytes.fromhex(written)
    assert encode(request_, version) == raw
    assert decode(StopReplicaRequest, raw, version) == request_


@pytest.mark.parametrize(
    ("version", "written"),
    [
        *((version, "000b 00000001 0002 6162 00000001 0000") for version in (0, 1)),
        *((version, "000b 02 03 6162 00000001 0000 00 00") for version in (2, 3, 4)),
    ],
)
def test_answers_are_these_bytes(version: int, written: str) -> None:
    response = StopReplicaResponse(error_code=11, partition_errors=[StopReplicaPartitionError("ab", 1)])
    raw = bytes.fromhex(written)
    assert encode(response, version) == raw
    assert decode(StopReplicaResponse, raw, version) == response


def test_fields_of_ours_are_left_out_where_they_say_nothing_and_never_needed() -> None:
    state = StopReplicaTopicState("ab", [StopReplicaPartitionState(1, DELETED_TOPIC_EPOCH, True)])
    request = StopReplicaRequest(controller_id=3, controller_epoch=7, topic_states=[state])
    read = decode(StopReplicaRequest, encode(request, 3), 3)
    assert (read.metadata_offset, read.topic_states[0].topic_id.int) == (-1, 0)
    assert read.topic_states[0].partition_states[0].leader_epoch == -2
    assert ANY_EPOCH == StopReplicaPartitionState(1).leader_epoch == -1


def test_a_request_that_ends_too_early_is_malformed() -> None:
    raw = encode(REQUESTS[4][1], 3)
    for size in range(len(raw)):
        with pytest.raises(MalformedMessageError):
            decode(StopReplicaRequest, raw[:size], 3)
