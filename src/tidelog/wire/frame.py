"""Frames: a size, a header, a message. The headers carry KIP-1243's consistency state where they can.

    request   size:int32  api_key:int16 api_version:int16 correlation_id:int32 client_id:string [tagged fields] body
    response  size:int32  correlation_id:int32 [tagged fields] body

The tagged fields are there where the API's version is flexible (request header 2, response header 1), with one
exception: an ApiVersions response has header 0 always, so that a client can read it before it knows anything.
"""

from __future__ import annotations

import struct
from functools import lru_cache, partial
from struct import Struct
from typing import NamedTuple

from tidelog.base.errors import MalformedMessageError
from tidelog.base.ports import Buffer
from tidelog.wire._choose import compiled_read_request_header
from tidelog.wire.api import APIS, ApiKey
from tidelog.wire.compile import Piece, encode_behind
from tidelog.wire.primitives import read_text, read_uvarint, skip_tagged_fields, uvarint

_API_VERSIONS = ApiKey.API_VERSIONS.value
_CONSISTENCY_STATE_TAG = 0
_SENDER_AT = 8
"""Where in a request what its sender says of itself begins: its client id, with its length, then the tagged fields."""
SENDERS_MAX = 64
SENDER_BYTES_MAX = 256

_request_start = Struct(">hhih")
_response_start = Struct(">i")
_token = Struct(">q")


class ConsistencyState(NamedTuple):
    """How recent the metadata is that the sender has seen, or that the answer reflects (KIP-1243)."""

    cluster_id: str | None
    token: int | None
    """The inclusive last offset of the metadata log; None (-1 on the wire) if none is known."""


NO_TOKEN_YET = ConsistencyState(None, None)
"""Of who has seen nothing, and wants to be told how recent answers are."""


class RequestHeader(NamedTuple):
    """What stands in front of every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    consistency_state: ConsistencyState | None


_senders: dict[bytes, tuple[str | None, ConsistencyState | None]] = {}
"""Client ids, and what they have seen, by the bytes that say so, all of them: the same come with request after request.

Those bytes say themselves where they end, so whatever begins with them means the same.
"""

_FLEXIBLE_FROM = {key: known.flexible_from for key, known in APIS.items()}
_make_header = partial(tuple.__new__, RequestHeader)  # as the constructor, at a third of its price


def decode_request_header(buffer: Buffer) -> tuple[RequestHeader, int]:
    """The header of the request that fills `buffer` (without its size), and where its body starts.

    An API or version that is not declared here is no error: the fields of header 1 are always readable, and tagged
    fields are read where the API is known to have them from that version on.

    Raises:
        MalformedMessageError: the bytes are no header.
    """
    if compiled_read_request_header is not None:
        found = compiled_read_request_header(buffer, _FLEXIBLE_FROM, _senders, _make_header)
        if found is not None:
            return found
    try:
        api_key, api_version, correlation_id, size = _request_start.unpack_from(buffer)
        position = _request_start.size + max(size, 0)
        if size < -1:
            raise MalformedMessageError(f"the client id's length is {size}")
        if position > len(buffer):
            raise MalformedMessageError(
                f"the client id of {size} bytes does not fit in the {len(buffer) - _request_start.size} that are left"
            )
        known = APIS.get(api_key)
        if known is None or api_version < known.flexible_from:
            return _make_header((api_key, api_version, correlation_id, _client_id(buffer, size), None)), position
        if buffer[position] == 0:
            end = position + 1
        else:
            end = position + 3 + buffer[position + 2] if position + 2 < len(buffer) else position
        sender = _senders.get(bytes(buffer[_SENDER_AT:end]))
        if sender is None:
            state, end = _decode_tagged_fields(buffer, position)
            sender = _client_id(buffer, size), state
            _remember_sender(bytes(buffer[_SENDER_AT:end]), sender)
        return _make_header((api_key, api_version, correlation_id, *sender)), end
    except (struct.error, IndexError):
        raise MalformedMessageError(f"request header: the frame ends after {len(buffer)} bytes") from None
    except MalformedMessageError as error:
        raise MalformedMessageError(f"request header: {error}") from None


def _client_id(buffer: Buffer, size: int) -> str | None:
    if size < 0:
        return None
    raw = buffer[_request_start.size : _request_start.size + size]
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        return read_text(raw)


def _remember_sender(raw: bytes, sender: tuple[str | None, ConsistencyState | None]) -> None:
    if len(raw) <= SENDER_BYTES_MAX:
        if len(_senders) >= SENDERS_MAX:
            _senders.clear()
        _senders[raw] = sender


def decode_response_header(buffer: Buffer, api_key: int, api_version: int) -> tuple[int, ConsistencyState | None, int]:
    """The correlation id, the consistency state if there is one, and where the body starts.

    Args:
        buffer: the response without its size.
        api_key: of the request that it answers; `api_version` likewise.

    Raises:
        MalformedMessageError: the bytes are no header.
    """
    try:
        (correlation_id,) = _response_start.unpack_from(buffer)
        state, position = None, _response_start.size
        if _response_is_flexible(api_key, api_version):
            if buffer[position] == 0:
                position += 1
            else:
                state, position = _decode_tagged_fields(buffer, position)
        return correlation_id, state, position
    except (struct.error, IndexError):
        raise MalformedMessageError(f"response header: the frame ends after {len(buffer)} bytes") from None
    except MalformedMessageError as error:
        raise MalformedMessageError(f"response header: {error}") from None


def encode_request(
    api_key: int,
    api_version: int,
    correlation_id: int,
    client_id: str | None,
    message: object,
    *,
    consistency_state: ConsistencyState | None = None,
) -> list[Piece]:
    """A whole request frame, its size in front, as pieces to send in order.

    The consistency state is dropped where the header cannot carry it (a version that is not flexible).

    Raises:
        KafkaError: UNSUPPORTED_VERSION, as `encode_pieces`.
        ValueError: a value does not fit, the client id included (at most 32,767 bytes of UTF-8).
    """
    name = b"" if client_id is None else client_id.encode()
    if len(name) > 0x7FFF:
        raise ValueError(f"the client id has {len(name)} bytes; at most 32767 fit in a request")
    header = _request_start.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(name)) + name
    known = APIS.get(api_key)
    if known is not None and api_version >= known.flexible_from:
        header += b"\0" if consistency_state is None else _encode_tagged_fields(consistency_state)
    return encode_behind(header, message, api_version)


def encode_response(
    api_key: int,
    api_version: int,
    correlation_id: int,
    message: object,
    consistency_state: ConsistencyState | None = None,
) -> list[Piece]:
    """A whole response frame, its size in front, as pieces to send in order. See `encode_request`."""
    header = _response_start.pack(correlation_id)
    known = APIS.get(api_key)  # as `_response_is_flexible`, without the call
    if known is not None and api_version >= known.flexible_from and api_key != _API_VERSIONS:
        header += b"\0" if consistency_state is None else _encode_tagged_fields(consistency_state)
    return encode_behind(header, message, api_version)


def _response_is_flexible(api_key: int, api_version: int) -> bool:
    if api_key == _API_VERSIONS:
        return False
    known = APIS.get(api_key)
    return known is not None and api_version >= known.flexible_from


@lru_cache(maxsize=16)  # every answer of a node carries the same one until its metadata changes
def _encode_tagged_fields(state: ConsistencyState) -> bytes:
    cluster_id = state.cluster_id
    if cluster_id is None:
        raw = b"\0"
    else:
        name = cluster_id.encode()
        raw = uvarint(len(name) + 1) + name
    raw += _token.pack(-1 if state.token is None else state.token) + b"\0"
    return b"\1" + uvarint(_CONSISTENCY_STATE_TAG) + uvarint(len(raw)) + raw


def _decode_tagged_fields(buffer: Buffer, position: int) -> tuple[ConsistencyState | None, int]:
    """The consistency state among the tagged fields at `position`, and the position after them all."""
    count, start = read_uvarint(buffer, position)
    position = skip_tagged_fields(buffer, start, len(buffer), count)
    if count == 0:
        return None, position
    tag, start = read_uvarint(buffer, start)
    size, start = read_uvarint(buffer, start)
    if tag != _CONSISTENCY_STATE_TAG:  # tags ascend: it is the first or it is not there
        return None, position
    try:
        state = _decode_consistency_state(buffer[start : start + size])
    except (struct.error, IndexError):
        raise MalformedMessageError(f"the consistency state does not fit in its {size} bytes") from None
    except UnicodeDecodeError as error:
        raise MalformedMessageError(f"the cluster id is not UTF-8 ({error.reason})") from None
    return state, position


def _decode_consistency_state(raw: Buffer) -> ConsistencyState:
    size, position = read_uvarint(raw, 0)
    cluster_id = None
    if size:
        start, position = position, position + size - 1
        if position > len(raw):
            raise MalformedMessageError(f"the cluster id of {size - 1} bytes does not fit in its tag")
        cluster_id = str(raw[start:position], "utf-8")
    (token,) = _token.unpack_from(raw, position)
    position += _token.size
    count, position = read_uvarint(raw, position)
    position = skip_tagged_fields(raw, position, len(raw), count)
    if position != len(raw):
        raise MalformedMessageError(f"{len(raw) - position} bytes follow the consistency state in its tag")
    return ConsistencyState(cluster_id, None if token < 0 else token)
