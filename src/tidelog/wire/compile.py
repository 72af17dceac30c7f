"""Encode and decode messages, with codecs that are made per version when first used.

Where there is a compiled kernel, it does both. It refuses what is out of the ordinary, and knows no errors; the codecs
that are generated as Python source do that, and all the rest where there is no kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Sized
from types import TracebackType
from typing import Any, TypeVar

from tidelog.base.errors import Code, MalformedMessageError, TooManyElementsError, refusal
from tidelog.base.ports import Buffer
from tidelog.wire._choose import CompiledCodec
from tidelog.wire.limits import ELEMENTS_MAX
from tidelog.wire.primitives import read_text
from tidelog.wire.schema import Layout

M = TypeVar("M")

_SIZE = struct.Struct(">i")

Piece = Buffer | Sized
"""Bytes to send: a buffer, or something with a length that still has to be read from disk (a slice of a log)."""


def encode(message: object, version: int) -> bytes:
    """The message as bytes.

    Raises:
        KafkaError: UNSUPPORTED_VERSION if there is no such version, or it cannot carry a field that is set.
        ValueError: a value does not fit its type; names the field.
        TypeError: a `records` field holds bytes that are still on disk: use `encode_pieces`.
    """
    return b"".join(encode_pieces(message, version))  # type: ignore[arg-type]  # bytes.join checks it


def encode_pieces(message: object, version: int) -> list[Piece]:
    """The message as pieces to send in order. Each non-empty `records` value is one of them, as it was given.

    Raises as `encode` does.
    """
    return encode_behind(None, message, version)


def encode_behind(header: bytes | None, message: object, version: int) -> list[Piece]:
    """As `encode_pieces`; behind a header that is not None, it is a frame: with the size of both in front."""
    layout: Layout = message.__layout__  # type: ignore[attr-defined]
    if CompiledCodec is not None:
        codec = layout.codecs.get(version) or _compiled_codec(layout, version)
        encoded = codec.encode(message, header)
        if encoded is not None:
            return encoded  # type: ignore[no-any-return]
    parts: list[bytes] = [] if header is None else [b"", header]
    pieces: list[Piece] = []
    _append_message(layout, message, version, parts, pieces)
    if parts:
        pieces.append(b"".join(parts))
    if header is not None:
        pieces[0] = _SIZE.pack(sum(map(len, pieces))) + pieces[0]  # type: ignore[operator]  # it holds the header
    return pieces


def _append_message(layout: Layout, message: object, version: int, parts: list[bytes], pieces: list[Piece]) -> None:
    """Encode into `parts`, moving them to `pieces` as one whenever a `records` value comes behind them."""
    encoder = layout.encoders.get(version) or _compile_encoder(layout, version)
    try:
        encoder(message, parts, pieces)
    except (struct.error, TypeError, ValueError, AttributeError, OverflowError) as error:
        path = ", ".join(_paths(error, encoder, layout)[0])
        raise ValueError(f"{layout.name} v{version} cannot be encoded: {path}: {error}") from error


def decode(
    cls: type[M],
    buffer: Buffer,
    version: int,
    position: int = 0,
    *,
    ignores_trailing_bytes: bool = False,
    elements_max: int = ELEMENTS_MAX,
) -> M:
    """The message that fills `buffer` from `position` to its end.

    With `ignores_trailing_bytes` more may follow: Kafka's brokers do not mind, and librdkafka 2.16 relies on that (its
    Metadata 13 for all topics has three bytes too many).

    Strings that are not UTF-8 have U+FFFD in their places, as in Kafka.
    A `records` field becomes a memoryview of the buffer (no copy: valid and writable for as long as the buffer is);
    everything else is copied out.

    Args:
        elements_max: of a request, how many elements of arrays and tagged fields are read; long strings count as
            several (`TEXT_ELEMENT_BYTES`).

    Raises:
        MalformedMessageError: the bytes are not such a message; names the field and the position. Nothing larger than
            the buffer can hold was allocated.
        TooManyElementsError: a request holds more than `elements_max`.
        KafkaError: UNSUPPORTED_VERSION if there is no such version.
    """
    layout: Layout = cls.__layout__  # type: ignore[attr-defined]
    if CompiledCodec is not None:
        codec = layout.codecs.get(version) or _compiled_codec(layout, version)
        data = buffer if buffer.__class__ is memoryview else memoryview(buffer)
        message = codec.decode(data, position, elements_max, ignores_trailing_bytes)
        if message is not None:
            return message  # type: ignore[no-any-return]
    decoder = layout.decoders.get(version) or _compile_decoder(layout, version)
    data = buffer if buffer.__class__ is memoryview else memoryview(buffer)
    end = len(data)
    try:
        try:
            message, position = decoder(data, position, end, elements_max)
        except UnicodeDecodeError:
            decoder = layout.lossy_decoders.get(version) or _compile_decoder(layout, version, is_lossy=True)
            message, position = decoder(data, position, end, elements_max)
    except TooManyElementsError as error:
        path = _paths(error, decoder, layout)[0][-1]
        reason = f"{path}: the request lists more than {elements_max} values, or as much text"
        raise TooManyElementsError(f"{layout.name} v{version}: {reason}") from None
    except (MalformedMessageError, struct.error, IndexError) as error:
        raise _malformed(layout, version, error, decoder, end) from None
    if position != end and not ignores_trailing_bytes:
        raise MalformedMessageError(
            f"{layout.name} v{version}: it ends at byte {position}, but {end - position} more bytes follow"
        )
    return message  # type: ignore[no-any-return]


def _compiled_codec(layout: Layout, version: int) -> Any:
    assert CompiledCodec is not None
    _check_version(layout, version)
    codec = layout.codecs[version] = CompiledCodec(layout, version)
    return codec


def _compile_encoder(layout: Layout, version: int) -> Any:
    from tidelog.wire.generate_encoder import EncoderSource

    _check_version(layout, version)
    made = EncoderSource(layout, version)
    encoder = layout.encoders[version] = made.compile()
    layout.sources[encoder] = made.source
    return encoder


def _compile_decoder(layout: Layout, version: int, *, is_lossy: bool = False) -> Any:
    from tidelog.wire.generate_decoder import DecoderSource

    _check_version(layout, version)
    made = DecoderSource(layout, version, read_text if is_lossy else str)
    decoders = layout.lossy_decoders if is_lossy else layout.decoders
    decoder = decoders[version] = made.compile()
    layout.sources[decoder] = made.source
    return decoder


def _check_version(layout: Layout, version: int) -> None:
    if version not in layout.versions:
        known = f"{layout.versions.start} to {layout.versions.stop - 1}" if layout.versions else "none: it is a struct"
        raise refusal(Code.UNSUPPORTED_VERSION, f"{layout.name} has no version {version}; known: {known}")


def _malformed(layout: Layout, version: int, error: Exception, decoder: Any, end: int) -> MalformedMessageError:
    paths, sizes, position = _paths(error, decoder, layout)
    path = next((path for path, size in zip(paths, sizes, strict=True) if position + size > end), paths[-1])
    if isinstance(error, MalformedMessageError):
        reason = str(error)
    else:
        reason = f"it is cut short: the message ends at byte {end}"
    return MalformedMessageError(f"{layout.name} v{version}: {path}, at byte {position}: {reason}")


def _paths(error: BaseException, function: Any, layout: Layout) -> tuple[list[str], list[int], int]:
    """The fields that generated code was at when it failed, where each ends from the position, and the position.

    They are several where a stretch of fixed-size fields is packed or unpacked at once.
    """
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not function.__code__:
        trace = trace.tb_next
    if trace is None:
        return ["(before its first field)"], [0], 0
    values = trace.tb_frame.f_locals
    indexes = {name: len(value) for name, value in values.items() if name[0] == "a" and isinstance(value, list)}
    note = layout.sources[function].notes[trace.tb_lineno - 1] or ((0, ""),)
    paths = [path.format_map(indexes).lstrip(".").strip() or "(the message)" for _, path in note]
    return paths, [size for size, _ in note], values.get("p", 0)
