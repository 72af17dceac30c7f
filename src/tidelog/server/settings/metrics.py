"""What a node counts while it serves: plain numbers, a few additions for each request, read when somebody asks.

    bytes come ── queue ──► handler starts ── handle ──► its answer is there, or it waits ── wait ──► answered
    `-------------------------------------- total ------------------------------------------------'

Nothing here knows how metrics are shown; that is for `metrics_export`, which is loaded with its library when
`metrics.listener` is set. Without it, and without a log of slow requests, nothing is timed.

Kafka: `BrokerTopicMetrics`, `RequestMetrics`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Container
from time import perf_counter_ns
from typing import Any, Literal

from tidelog.wire.api import Api, ApiKey
from tidelog.wire.schema import Layout, layout_of

BUCKET_SHIFT = 16
BUCKET_COUNT = 48
QUICK_NS = 1 << BUCKET_SHIFT
"""The first bucket of a histogram holds what took less than 2**16 ns (66 µs), each further one twice as long."""

LOOP_CHECK_INTERVAL_SECONDS = 0.25
OTHER_TOPICS = "_other"
"""No topic's own label: what the rest are added up under. A topic of this name shares it."""
FETCHED_TOPICS_MAX = 100_000

Reader = Literal["consumer", "follower", "share_group"]
NoteErrors = Callable[[Any, dict[int, int]], None]
"""Adds the errors of an answer, by code."""


class Histogram:
    """How often what took how long, in nanoseconds. Adding is for the event loop alone."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * BUCKET_COUNT
        self.sum_ns = 0

    def add(self, took_ns: int) -> None:
        self.counts[(took_ns >> BUCKET_SHIFT).bit_length()] += 1
        self.sum_ns += took_ns


class RequestTimes:
    """The requests of one API and version.

    Most take less than the first bucket holds, in all their phases then: `quick` counts these, and the buckets the
    rest. A request of one record costs the node 20 µs, and this is in each of them.
    """

    __slots__ = (
        "errors",
        "handle",
        "handle_ns",
        "note",
        "queue",
        "quick",
        "total",
        "total_ns",
        "unanswered",
        "wait",
    )

    def __init__(self, note: NoteErrors) -> None:
        self.note = note
        self.errors: dict[int, int] = {}
        self.quick = 0
        self.queue = [0] * BUCKET_COUNT
        self.handle = [0] * BUCKET_COUNT
        self.handle_ns = 0
        self.total = [0] * BUCKET_COUNT
        self.total_ns = 0
        self.wait = Histogram()  # of those that had to
        self.unanswered = 0

    def on_answered(self, received_ns: int, started_ns: int, message: object) -> int:
        """A request was answered in one go. Returns how long it took, in nanoseconds."""
        now_ns = perf_counter_ns()
        total_ns = now_ns - received_ns
        self.total_ns += total_ns
        self.handle_ns += now_ns - started_ns
        if total_ns < QUICK_NS:
            self.quick += 1
        else:
            self._add(started_ns - received_ns, now_ns - started_ns, total_ns)
        self.note(message, self.errors)
        return total_ns

    def on_unanswered(self, received_ns: int, started_ns: int) -> int:
        """One for which the protocol has no answer."""
        now_ns = perf_counter_ns()
        self.unanswered += 1
        self.handle_ns += now_ns - started_ns
        self.total_ns += now_ns - received_ns
        self._add(started_ns - received_ns, now_ns - started_ns, now_ns - received_ns)
        return now_ns - received_ns

    def noted(self, message: object) -> dict[int, int]:
        """The errors, by code, for `on_waited`. It looks at each row of the answer, and may do so on another thread."""
        errors: dict[int, int] = {}
        self.note(message, errors)
        return errors

    def on_waited(self, received_ns: int, started_ns: int, waiting_ns: int, noted: dict[int, int] | None) -> int:
        """One that was answered later, or not at all: it waited since `waiting_ns`."""
        now_ns = perf_counter_ns()
        self.wait.add(now_ns - waiting_ns)
        if noted is None:
            self.unanswered += 1
        else:
            for code, count in noted.items():
                self.errors[code] = self.errors.get(code, 0) + count
        self.handle_ns += waiting_ns - started_ns
        self.total_ns += now_ns - received_ns
        self._add(started_ns - received_ns, waiting_ns - started_ns, now_ns - received_ns)
        return now_ns - received_ns

    def _add(self, queue_ns: int, handle_ns: int, total_ns: int) -> None:
        self.queue[(queue_ns >> BUCKET_SHIFT).bit_length()] += 1
        self.handle[(handle_ns >> BUCKET_SHIFT).bit_length()] += 1
        self.total[(total_ns >> BUCKET_SHIFT).bit_length()] += 1

    @property
    def count(self) -> int:
        return self.quick + sum(self.total)

    @property
    def queue_ns(self) -> int:
        return self.total_ns - self.handle_ns - self.wait.sum_ns


class FetchedBytes:
    """The bytes of batches in answers to fetches.

    Attributes:
        by_reader: and by topic: its name, or its id where the request had that.
    """

    def __init__(self) -> None:
        self.by_reader: dict[Reader, dict[Any, int]] = {"consumer": {}, "follower": {}, "share_group": {}}

    def of(self, reader: Reader) -> dict[Any, int]:
        """By topic; to be added to, by one answer."""
        found = self.by_reader[reader]
        if len(found) > FETCHED_TOPICS_MAX:
            found.clear()  # nobody looked since so many topics came and went
        return found


class RequestMetrics:
    """The requests of a node, by API and version.

    Attributes:
        waiting: how many wait for their answer now, by API.
        fetched: what fetches were answered with.
    """

    def __init__(self) -> None:
        self.by_api: dict[ApiKey, tuple[Api, dict[int, RequestTimes]]] = {}
        self.waiting: dict[ApiKey, int] = {}
        self.fetched = FetchedBytes()

    def times_of(self, known: Api, version: int) -> RequestTimes:
        """The counters of an API and version; the same ones at each call."""
        _, by_version = self.by_api.setdefault(known.key, (known, {}))
        times = by_version.get(version)
        if times is None:
            times = by_version[version] = RequestTimes(error_counter(known.response))
        return times


class DiskMetrics:
    """How long the disk took to sync. Any thread may add."""

    def __init__(self) -> None:
        self.syncs = Histogram()
        self._lock = threading.Lock()

    def on_synced(self, took_ns: int) -> None:
        with self._lock:
            self.syncs.add(took_ns)


class NamedTopics:
    """The topics that have metrics of their own: the first to come, up to a limit. The rest are one.

    A topic keeps its name while it is there; whose topic is gone makes room for another.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._names: set[str] = set()

    def label(self, topic: str) -> str:
        if topic not in self._names:
            if len(self._names) >= self._count_max:
                return OTHER_TOPICS
            self._names.add(topic)
        return topic

    def keep(self, topics: Container[str]) -> None:
        """These are all that are there."""
        self._names = {name for name in self._names if name in topics}


class NodeMetrics:
    """All that is counted of one node beside what its parts know of themselves.

    Args:
        topics_max: how many topics have metrics of their own (`metrics.topics.max`).
    """

    def __init__(self, topics_max: int) -> None:
        self.requests = RequestMetrics()
        self.topics = NamedTopics(topics_max)
        self.disk = DiskMetrics()
        self.loop_lag = Histogram()

    async def watch_loop(self) -> None:
        """Measure how late the event loop comes to what is due, for as long as the node runs."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_CHECK_INTERVAL_SECONDS
            await asyncio.sleep(LOOP_CHECK_INTERVAL_SECONDS)
            self.loop_lag.add(max(int((loop.time() - due) * 1e9), 0))


def error_counter(response: type[Any]) -> NoteErrors:
    """A function that counts the error codes of an answer but 0, wherever they stand in it.

    Compiled from the message's declaration, as its codecs are: it looks at each row of each answer.
    """
    lines = ["def note(m, errors):", " pass"]
    _add_lines(lines, layout_of(response), "m", 1)
    names: dict[str, Any] = {}
    exec(compile("\n".join(lines), f"<errors of {response.__name__}>", "exec"), names)  # noqa: S102 - written above
    note: NoteErrors = names["note"]
    return note


def _add_lines(lines: list[str], layout: Layout, value: str, depth: int) -> bool:
    """Whether there is anything to count in a value of this layout."""
    indent, found = " " * depth, False
    for each in layout.fields:
        if each.name == "error_code":
            found = True
            code = f"{value}.error_code"
            lines.append(f"{indent}if {code}: errors[{code}] = errors.get({code}, 0) + 1")
        elif each.type.kind == "array" and each.type.element is not None and each.type.element.layout is not None:
            inner = [f"{indent}for {value}i in {value}.{each.name} or ():"]
            if _add_lines(inner, each.type.element.layout, f"{value}i", depth + 1):
                found = True
                lines += inner
    return found
