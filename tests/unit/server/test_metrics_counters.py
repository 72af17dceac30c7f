"""What is counted: buckets, error codes wherever they stand in an answer, and topics up to a limit."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.io.executor import InlineExecutor
from tidelog.server.observe.metrics_listener import MetricsListener
from tidelog.server.settings.metrics import (
    OTHER_TOPICS,
    QUICK_NS,
    Histogram,
    NamedTopics,
    RequestMetrics,
    error_counter,
)
from tidelog.server.tasks import Tasks
from tidelog.wire.api import APIS, ApiKey, api
from tidelog.wire.messages.api_00_produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tidelog.wire.messages.api_01_fetch import FetchableTopicResponse, FetchResponse, PartitionData


def test_buckets_double() -> None:
    histogram = Histogram()
    for took_ns in (0, QUICK_NS - 1, QUICK_NS, 2 * QUICK_NS - 1, 2 * QUICK_NS, 1 << 62):
        histogram.add(took_ns)
    assert histogram.counts[:4] == [2, 2, 1, 0]
    assert sum(histogram.counts) == 6


def test_error_codes_are_counted_in_every_row() -> None:
    rows = [PartitionProduceResponse(index=i, error_code=code, base_offset=0) for i, code in enumerate((0, 3, 3, 6))]
    message = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)] * 2)
    errors = {6: 1}
    error_counter(ProduceResponse)(message, errors)
    assert errors == {3: 4, 6: 3}


@pytest.mark.parametrize("key", sorted(APIS))
def test_the_errors_of_every_answer_can_be_counted(key: int) -> None:
    """Whatever the message is, there is a function, and it reads as Python."""
    assert callable(error_counter(api(key).response))


def test_errors_that_were_noted_elsewhere_are_added_where_the_counters_are() -> None:
    metrics = RequestMetrics()
    times = metrics.times_of(api(ApiKey.FETCH), 13)
    assert metrics.times_of(api(ApiKey.FETCH), 13) is times
    row = PartitionData(partition_index=2, error_code=6, high_watermark=-1, records=b"")
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])
    for _ in range(2):
        times.on_answered(0, 0, answer)
    assert times.errors == {6: 2}
    noted = times.noted(answer)
    assert times.errors == {6: 2}
    times.on_waited(0, 0, 0, noted)
    assert times.errors == {6: 3}
    assert times.count == 3


def test_the_first_topics_to_come_have_names_until_they_are_gone() -> None:
    topics = NamedTopics(2)
    assert [topics.label(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER_TOPICS, "a", OTHER_TOPICS]
    topics.keep({"b", "c", "d"})
    assert [topics.label(name) for name in ("b", "c", "d")] == ["b", "c", OTHER_TOPICS]


class NotReady:
    """A node that says why it is not ready."""

    not_ready: str | None = "it starts: the logs are being opened"


def test_a_node_that_does_not_serve_says_why() -> None:
    async def scenario() -> None:
        node = NotReady()
        listener = MetricsListener(node, InlineExecutor(), Tasks("node"))  # type: ignore[arg-type]
        status, _, body = await listener._answer(b"GET /ready HTTP/1.1\r\n\r\n")
        assert (status, body) == (503, b"not ready: it starts: the logs are being opened\n")
        node.not_ready = None
        assert (await listener._answer(b"GET /ready?now HTTP/1.1\r\n\r\n"))[0] == 200

    asyncio.run(scenario())
