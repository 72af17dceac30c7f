"""Envelope (key 58): a broker sends a client's request on to the controller, and says whose it is (KIP-590).

The request and its answer stand in it whole, each with its header, without its size. Which attempt of the broker it is
are tagged fields of ours, with tags far from those of others.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.compile import Piece
from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import bytes_, field, int16, int32, int64, message, records, uuid

SENDER_ID_TAG = 10_000
SENDER_GENERATION_TAG = 10_001
LEADER_EPOCH_TAG = 10_002


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeRequest:
    """A request of a client, and who that is."""

    request_data: Piece = field(records, default=b"", doc="The client's request: its header, then its body.")
    request_principal: bytes | None = field(
        bytes_,
        nullable="0+",
        default=None,
        doc="Who authenticated to the broker, as its builder of principals wrote it.",
    )
    client_host_address: bytes = field(bytes_, default=b"", doc="The client's address: 4 bytes of IPv4, or 16 of IPv6.")
    sender_id: UUID = field(
        uuid,
        tag=SENDER_ID_TAG,
        default=ZERO_UUID,
        ignorable=True,
        doc="Ours: of the sender's requests of this kind since its start; zero where it counts nothing.",
    )
    sender_generation: int = field(
        int64,
        tag=SENDER_GENERATION_TAG,
        default=-1,
        ignorable=True,
        doc="Ours: rises with each request that the sender gave up without an answer.",
    )
    leader_epoch: int = field(
        int32,
        tag=LEADER_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="Ours: of the metadata quorum, as the sender knew it when it sent this.",
    )


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    """What the client is to be answered."""

    response_data: Piece | None = field(
        records, nullable="0+", default=None, doc="The answer: its header, then its body; none after an error."
    )
    error_code: int = field(int16, default=0, doc="Of the envelope itself: why the request in it has no answer.")
