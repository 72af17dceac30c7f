"""The compiled codecs and the generated ones: equal messages, equal bytes, equal errors."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import fuzz_codecs
from support.clients.wire_samples import ALL_MESSAGES, messages, sample
from support.fixtures.codec_twins import (
    GuardedMemory,
    agreed,
    agreed_pieces,
    generated_code,
    read_by_the_kernel,
    written_by_the_kernel,
)
from tidelog.base.errors import Code, KafkaError, MalformedMessageError, TooManyElementsError
from tidelog.wire import (
    ApiKey,
    ConsistencyState,
    decode,
    decode_request_header,
    encode,
    encode_pieces,
    encode_request,
    encode_response,
    field,
    frame,
    message,
    struct,
)
from tidelog.wire._choose import CompiledCodec
from tidelog.wire.messages.api_00_produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.wire.schema import array, boolean, bytes_, float64, int8, int32, layout_of, records, string, uint32, uuid

pytestmark = pytest.mark.skipif(CompiledCodec is None, reason="no compiled codec was built here")

SIZE_BYTES_MAX = 1 << 20
MEMORY = GuardedMemory(SIZE_BYTES_MAX)
DAMAGES = (b"", b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\x80\x80", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x10")


def damaged(rng: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(changed) + 1)
        size = rng.choice((0, 1, 1, 2))
        changed[at : at + size] = rng.choice(DAMAGES)
    return bytes(changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.2 else changed)


def test_the_kernel_reads_and_writes_every_message_by_itself() -> None:
    for cls, version in ALL_MESSAGES:
        each = sample(cls, version)
        raw = encode(each, version)
        assert b"".join(written_by_the_kernel(each, version) or ()) == raw, (cls, version)
        assert read_by_the_kernel(cls, MEMORY.view(raw), version) == each


def test_nothing_is_kept_of_what_was_read_written_or_refused() -> None:
    rng = random.Random(20_261_129)
    assert CompiledCodec is not None
    codecs = [(CompiledCodec(layout_of(cls), version), sample(cls, version), version) for cls, version in ALL_MESSAGES]
    encoded = [(codec, each, memoryview(encode(each, version))) for codec, each, version in codecs]

    def blocks_after_a_round() -> int:
        for codec, each, raw in encoded:
            codec.encode(each, b"header")
            for part in (raw, raw[: rng.randrange(len(raw) + 1)], memoryview(damaged(rng, bytes(raw)))):
                codec.decode(part, 0, 1 << 18, True)
            codec.decode(raw, 0, 1, False)
        gc.collect()
        return sys.getallocatedblocks()

    blocks_after_a_round()
    before = blocks_after_a_round()
    for _ in range(4):
        after = blocks_after_a_round()
    assert after - before < len(encoded)  # a leak of one in each would be four times that


def test_text_that_is_not_utf_8_leaves_no_default_behind() -> None:
    """It ends the reading of a tagged field whose default is a list of its own."""
    assert CompiledCodec is not None
    raw = memoryview(encode(Oddities(names=["text"]), 1).replace(b"text", b"t\xffxt"))
    codec = CompiledCodec(layout_of(Oddities), 1)

    def blocks_after(count: int) -> int:
        for _ in range(count):
            assert codec.decode(raw, 0, 1 << 18, False) is None
        gc.collect()
        return sys.getallocatedblocks()

    before = blocks_after(100)
    assert blocks_after(1_000) - before < 500


def test_both_codecs_agree_for_a_moment() -> None:
    """The fuzzer of codecs; `make fuzz` runs it longer."""
    assert fuzz_codecs.main(2.0, seed=20_261_130) > 50


def test_damaged_messages_are_read_or_refused_alike() -> None:
    rng = random.Random(20_261_127)
    refused = 0
    for cls, version in ALL_MESSAGES:
        raw = encode(sample(cls, version), version)
        for _ in range(12):
            found, _ = agreed(
                cls,
                MEMORY.view(damaged(rng, raw)),
                version,
                ignores_trailing_bytes=rng.random() < 0.5,
                elements_max=rng.choice((3, 1 << 18)),
            )
            refused += isinstance(found, type)
    assert refused > 1_000


@given(st.data())
def test_any_message_is_written_and_read_alike(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(ALL_MESSAGES))
    each = data.draw(messages(cls, version))
    pieces = agreed_pieces(each, version)
    raw = b"".join(pieces)
    if len(raw) <= SIZE_BYTES_MAX:
        assert agreed(cls, MEMORY.view(raw), version)[0] == each
        rng = random.Random(data.draw(st.integers(0, 1 << 30)))
        agreed(cls, MEMORY.view(damaged(rng, raw)), version)


@message(api_key=0, versions="0-2", flexible="1+")
class Oddities:
    """Of every kind one."""

    small: int = field(int8, default=0)
    unsigned: int = field(uint32, default=0)
    number: float = field(float64, default=0.0)
    flag: bool = field(boolean, default=False)
    text: str = field(string, default="")
    raw: bytes = field(bytes_, default=b"")
    id: UUID = field(uuid, default=UUID(int=0))
    batch: Any = field(records, nullable="0+", default=None)
    texts: list[str] | None = field(array(string), nullable="0+", default=None)
    numbers: list[int] = field(array(int32), default_factory=list)
    newer: int = field(int32, versions="2+", default=7)
    tags: list[int] = field(array(int32), versions="1+", tag=3, default_factory=list, ignorable=True)
    truth: bool = field(boolean, versions="1+", tag=1, default=True, ignorable=True)
    names: list[str] = field(array(string), versions="1+", tag=5, default_factory=list, ignorable=True)


class Number(IntEnum):
    FIVE = 5


class Index:
    def __index__(self) -> int:
        return 6


class Text(str):
    __slots__ = ()


class Batch:
    """Bytes that still lie on disk."""

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("small", [-128, 127, 128, -129, True, Number.FIVE, Index(), 1.0, "1", None, 1 << 80]),
        ("unsigned", [0, (1 << 32) - 1, 1 << 32, -1]),
        ("number", [1, 2.5, float("inf"), None, "x"]),
        ("flag", [0, 1, None, "x"]),
        ("text", ["ü", "\ud800", None, Text("t"), b"x", "x" * 32_767, "x" * 32_768, "ü" * 20_000]),
        ("raw", [bytearray(b"x"), memoryview(b"xy"), None, "x"]),
        ("id", [UUID(int=1), None, "x"]),
        ("batch", [b"", b"x", memoryview(b"xyz"), 5]),
        ("texts", [[], ["a"], ("a", "b"), [None], "ab", 5]),
        ("numbers", [[1] * 200, (1, 2), [1 << 31], ["x"], None]),
        ("newer", [7, 8, None, "7"]),
        ("tags", [[1], (), (5,), None, 5]),
        ("truth", [False, 0, None]),
    ],
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_unusual_values_are_written_or_refused_alike(name: str, values: list[Any], version: int) -> None:
    for value in values:
        each = Oddities()
        setattr(each, name, value)
        agreed_pieces(each, version)


def test_what_lacks_a_value_or_is_no_such_message_is_refused_alike() -> None:
    each = Oddities()
    del each.text
    assert agreed_pieces(each, 1)[0] is ValueError
    answer = ProduceResponse(responses=["no struct"])  # type: ignore[list-item]
    assert agreed_pieces(answer, 9)[0] is ValueError


def test_bytes_on_disk_are_pieces_as_they_came() -> None:
    batch = Batch()
    found = encode_pieces(Oddities(batch=batch, text="before"), 1)
    assert found[1] is batch
    with generated_code():
        assert encode_pieces(Oddities(batch=batch, text="before"), 1) == found


def test_frames_have_their_size_in_front() -> None:
    row = PartitionProduceResponse(3, current_leader=LeaderIdAndEpoch(1, 2), error_message="ü" * 100)
    answer = ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=[row])])
    for version in range(3, 14):
        frame = b"".join(encode_response(ApiKey.PRODUCE, version, 5, answer))  # type: ignore[arg-type]
        with generated_code():
            assert b"".join(encode_response(ApiKey.PRODUCE, version, 5, answer)) == frame  # type: ignore[arg-type]
        assert int.from_bytes(frame[:4]) == len(frame) - 4


def test_text_that_is_not_utf_8_is_read_alike() -> None:
    raw = encode(Oddities(text="text"), 1).replace(b"text", b"t\xffxt")
    assert read_by_the_kernel(Oddities, memoryview(raw), 1) is None
    assert agreed(Oddities, memoryview(raw), 1)[0].text == "t�xt"


def test_records_are_a_view_of_what_came() -> None:
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(0, b"abc")])]
    )
    raw = bytearray(encode(request, 9))
    found = decode(ProduceRequest, raw, 9).topic_data[0].partition_data[0].records
    assert isinstance(found, memoryview)
    raw[raw.index(b"abc")] = ord("x")
    assert bytes(found) == b"xbc"
    found[0] = ord("y")
    assert b"ybc" in raw


@struct
class One:
    text: str = field(string)


@message(api_key=0, versions="0", flexible="0")
class ManyRequest:
    """Of many elements."""

    many: list[One] = field(array(One))


def test_other_threads_run_while_a_long_message_is_read_or_written() -> None:
    many = ManyRequest(many=[One("x")] * 200_000)
    raw = memoryview(encode(many, 0))
    for work in (lambda: decode(ManyRequest, raw, 0), lambda: encode(many, 0)):
        assert turns_of_another_thread(work) > 1


def turns_of_another_thread(work: Callable[[], Any]) -> int:
    """How often another thread could run during some of this work."""
    turns, is_done = 0, threading.Event()

    def run() -> None:
        for _ in range(20):
            work()
        is_done.set()

    worker = threading.Thread(target=run)
    worker.start()
    while not is_done.wait(0.001):
        turns += 1
    worker.join()
    return turns


def test_elements_are_counted() -> None:
    raw = memoryview(encode(ManyRequest(many=[One("x")] * 5), 0))
    assert agreed(ManyRequest, raw, 0, elements_max=5)[0].many == [One("x")] * 5
    assert agreed(ManyRequest, raw, 0, elements_max=4)[0] is TooManyElementsError
    assert agreed(ManyRequest, memoryview(b"\xff\xff\xff\xff\x0f" + bytes(raw)), 0)[0] is MalformedMessageError


def test_a_version_that_is_not_there_is_refused() -> None:
    for work in (lambda: decode(Oddities, b"", 3), lambda: encode(Oddities(), 3)):
        with pytest.raises(KafkaError) as refused:
            work()
        assert refused.value.code is Code.UNSUPPORTED_VERSION


def header_of(raw: bytes) -> Any:
    """What the header of a request is, or the text of its error."""
    try:
        return decode_request_header(memoryview(raw))
    except MalformedMessageError as error:
        return str(error)


def test_headers_of_requests_are_read_or_refused_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(20_261_128)
    states = (None, ConsistencyState(None, None), ConsistencyState("cluster", 12))
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
    known = 0
    for number in range(3_000):
        name, state = rng.choice((None, "", "client", "ü")), rng.choice(states)
        pieces: list[Any] = encode_request(
            ApiKey.PRODUCE, rng.choice((8, 9)), number, name, request, consistency_state=state
        )
        raw = b"".join(pieces)[4:]
        for each in (raw, damaged(rng, raw)):
            header_of(each)  # from now on its sender is known
            found = header_of(each)
            with monkeypatch.context() as patch:
                patch.setattr(frame, "compiled_read_request_header", None)
                assert header_of(each) == found, each.hex()
            known += not isinstance(found, str)
    assert known > 3_000
