"""What is encoded is what is decoded: every declared message, every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.clients.wire_samples import ALL_MESSAGE_IDS, ALL_MESSAGES, messages, sample
from support.examples import examples
from tidelog.wire import decode, encode, encode_pieces


@pytest.mark.parametrize(("cls", "version"), ALL_MESSAGES, ids=ALL_MESSAGE_IDS)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_decode_is_the_inverse_of_encode(cls: type[Any], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    raw = encode(message, version)
    assert decode(cls, raw, version) == message
    assert b"".join(encode_pieces(message, version)) == raw  # type: ignore[arg-type]


@pytest.mark.parametrize(("cls", "version"), ALL_MESSAGES, ids=ALL_MESSAGE_IDS)
def test_a_message_with_every_field_set_survives(cls: type[Any], version: int) -> None:
    message = sample(cls, version)
    assert decode(cls, encode(message, version), version) == message


@pytest.mark.parametrize(("cls", "version"), ALL_MESSAGES, ids=ALL_MESSAGE_IDS)
def test_a_message_may_start_anywhere_in_its_buffer(cls: type[Any], version: int) -> None:
    message = sample(cls, version)
    frame = bytearray(b"header") + encode(message, version)
    assert decode(cls, memoryview(frame), version, 6) == message
