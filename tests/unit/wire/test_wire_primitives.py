"""Varints and ids."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import MalformedMessageError
from tidelog.wire.primitives import (
    ZERO_UUID,
    read_uvarint,
    read_varint,
    skip_tagged_fields,
    uuid_of,
    uvarint,
    varint,
)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_383, "ff7f"),
        (2**31, "8080808008"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_an_unsigned_varint(value: int, raw: str) -> None:
    assert uvarint(value).hex() == raw
    assert read_uvarint(bytes.fromhex("ee" + raw + "ee"), 1) == (value, 1 + len(raw) // 2)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_what_does_not_fit_in_a_varint_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        uvarint(value)


@pytest.mark.parametrize("raw", ["", "80", "80808080", "8080808080", "ffffffff10", "80808080808001"])
def test_a_varint_that_is_cut_short_or_too_long_is_malformed(raw: str) -> None:
    with pytest.raises(MalformedMessageError, match="a varint is"):
        read_uvarint(bytes.fromhex(raw), 0)


@pytest.mark.parametrize(("value", "raw"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (-(2**31), "ffffffff0f")])
def test_a_signed_varint(value: int, raw: str) -> None:
    assert varint(value).hex() == raw
    assert read_varint(bytes.fromhex(raw), 0) == (value, len(raw) // 2)


@given(st.integers(-(2**31), 2**31 - 1))
def test_signed_varints_survive(value: int) -> None:
    assert read_varint(varint(value), 0)[0] == value


@given(st.uuids())
def test_an_id_made_of_bytes_is_an_ordinary_uuid(value: UUID) -> None:
    made = uuid_of(value.bytes)
    assert (made, hash(made), str(made), made.is_safe) == (value, hash(value), str(value), value.is_safe)
    assert uuid_of(bytes(16)) == ZERO_UUID


def test_skipped_tags_end_where_they_end() -> None:
    assert skip_tagged_fields(b"\1\0\2\3abc!", 0, 8, 2) == 7
    with pytest.raises(MalformedMessageError, match="tag 2 has 3 bytes, but only 2 are left"):
        skip_tagged_fields(b"\1\0\2\3ab", 0, 6, 2)
    with pytest.raises(MalformedMessageError, match="there are 9 tagged fields, but only 6 bytes are left"):
        skip_tagged_fields(b"\1\0\2\3ab", 0, 6, 9)
