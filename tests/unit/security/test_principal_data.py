"""Principals in bytes: those that Apache Kafka 4.3.1 writes, and what is none."""

from __future__ import annotations

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.principals import Principal
from tidelog.security.principal_data import SIZE_BYTES_MAX, decode_principal, encode_principal

ALICE = bytes.fromhex("0000055573657206616c6963650000")
OF_KAFKA = {
    ALICE: (Principal("User", "alice"), False),
    bytes.fromhex("00000555736572055a6fc3ab0100"): (Principal("User", "Zoë"), True),
    bytes.fromhex("00000647726f7570010000"): (Principal("Group", ""), False),
}
"""By the bytes that `DefaultKafkaPrincipalBuilder.serialize` makes of them."""


@pytest.mark.parametrize("raw", OF_KAFKA)
def test_kafka_writes_the_same_bytes(raw: bytes) -> None:
    principal, by_token = OF_KAFKA[raw]
    assert encode_principal(principal, by_token=by_token) == raw
    assert decode_principal(raw) == (principal, by_token)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (None, "names no principal"),
        (b"", "hold no version"),
        (b"\0", "hold no version"),
        (b"\0\1" + ALICE[2:], "no version 1"),
        (b"\xff\xff" + ALICE[2:], "no version -1"),
        (ALICE[:-4], "cannot be read"),
        (ALICE + b"\0", "cannot be read"),
        (b"\0\0\xff\xff\xff\xff\x0f", "cannot be read"),
        (ALICE.ljust(SIZE_BYTES_MAX + 1, b"\0"), "the most that are read"),
    ],
)
def test_what_is_no_principal_is_refused(raw: bytes | None, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as caught:
        decode_principal(raw)
    assert caught.value.code is Code.PRINCIPAL_DESERIALIZATION_FAILURE
