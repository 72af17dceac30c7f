"""A reader says where it goes on after a loss: noted for topics that are there, and never for too many at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.server.api.handlers.api_10005_report_resumptions import RESUMPTIONS_MAX, handle
from tidelog.server.api.told_readers import ToldReaders
from tidelog.wire.messages.api_10005_report_resumptions import ReportResumptionsRequest, ResumptionRow

TOPIC = UUID(int=7)


def reported(*rows: ResumptionRow) -> tuple[int, list[tuple[Any, ...]]]:
    """The answer, and what is remembered."""
    topics = {TOPIC: SimpleNamespace(name="t", partitions=[None, None])}
    node = SimpleNamespace(
        image=SimpleNamespace(topic_by_id=topics.get),
        clock=SimpleNamespace(wall_ms=lambda: 5),
        told_readers=ToldReaders(),
    )
    context = SimpleNamespace(header=SimpleNamespace(client_id=None), connection=SimpleNamespace(peer="10.0.0.1:55555"))
    answer = handle(cast(Any, node), ReportResumptionsRequest(resumptions=list(rows)), cast(Any, context))
    found = [(str(one.topic_partition), one.client_id, one.host, one.resumption) for one in node.told_readers]
    return answer.error_code, found


def test_what_is_there_is_noted_and_the_rest_passed_over() -> None:
    rows = [
        ResumptionRow(TOPIC, 1, 0, 60, 40, 40, "rewind"),
        ResumptionRow(TOPIC, 2, 0, 60, 40, 40, "rewind"),
        ResumptionRow(TOPIC, -1, 0, 60, 40, 40, "rewind"),
        ResumptionRow(UUID(int=8), 0, 0, 60, 40, 40, "rewind"),
    ]
    assert reported(*rows) == (Code.NONE, [("t-1", "", "10.0.0.1", (60, 40, "rewind"))])


def test_too_many_are_refused() -> None:
    row = ResumptionRow(TOPIC, 1, 0, 60, 40, 40, "rewind")
    assert reported(*[row] * (RESUMPTIONS_MAX + 1)) == (Code.INVALID_REQUEST, [])
