"""AlterPartition as it lies on the wire, written out by hand: only controllers and brokers speak it."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.wire import decode, encode
from tidelog.wire.messages.api_56_alter_partition import (
    RECOVERING,
    AlteredPartitionData,
    AlteredTopic,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
ASKED = AlterPartitionData(
    partition_index=1, leader_epoch=5, new_isr=[2, 3], leader_recovery_state=RECOVERING, partition_epoch=8
)
WITH_EPOCHS = AlterPartitionData(
    partition_index=1, leader_epoch=5, new_isr_with_epochs=[BrokerState(2, 9), BrokerState(3)], partition_epoch=8
)
HEAD = f"00000002 0000000000000009 02 {TOPIC_ID.hex} 02 00000001 00000005"


@pytest.mark.parametrize(
    ("version", "asked", "written"),
    [
        (2, ASKED, f"{HEAD} 03 00000002 00000003 01 00000008 00 00 00"),
        (
            3,
            WITH_EPOCHS,
            f"{HEAD} 03 00000002 0000000000000009 00 00000003 ffffffffffffffff 00 00 00000008 00 00 00",
        ),
    ],
)
def test_requests_are_these_bytes(version: int, asked: AlterPartitionData, written: str) -> None:
    request = AlterPartitionRequest(broker_id=2, broker_epoch=9, topics=[AlterPartitionTopic(TOPIC_ID, [asked])])
    raw = bytes.fromhex(written)
    assert encode(request, version) == raw
    assert decode(AlterPartitionRequest, raw, version) == request


@pytest.mark.parametrize("version", [2, 3])
def test_answers_are_these_bytes(version: int) -> None:
    granted = AlteredPartitionData(
        partition_index=1, leader_id=2, leader_epoch=5, isr=[2, 3], leader_recovery_state=RECOVERING, partition_epoch=9
    )
    response = AlterPartitionResponse(topics=[AlteredTopic(TOPIC_ID, [granted])])
    raw = bytes.fromhex(
        f"00000000 0000 02 {TOPIC_ID.hex} 0200000001 0000 00000002 00000005 03 00000002 00000003 01 00000009 00 00 00"
    )
    assert encode(response, version) == raw
    assert decode(AlterPartitionResponse, raw, version) == response
    response.error_code = 77
    assert encode(response, version)[4:6] == b"\0\x4d"
