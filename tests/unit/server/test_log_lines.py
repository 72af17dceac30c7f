"""The node's own log: JSON that a machine can read whatever was logged, and no floods; and what is slow."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from tidelog.server.api.request_context import Phases
from tidelog.server.api.slow_requests import SlowRequestLog
from tidelog.server.settings.log_lines import JsonLines, Seldom
from tidelog.wire import RequestHeader
from tidelog.wire.api import ApiKey, api

MS = 1_000_000


def line_of(message: str, *arguments: object, **extra: object) -> dict[str, object]:
    record = logging.makeLogRecord(
        {"name": "tidelog.test", "levelno": logging.WARNING, "levelname": "WARNING", "msg": message, "args": arguments}
        | {"created": 1_700_000_000.25, "msecs": 250.0}
        | extra
    )
    text = JsonLines(7).format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert isinstance(line, dict)
    return line


def test_a_line_has_its_fields_and_those_of_the_event() -> None:
    assert line_of('%s said "%s"\n', "peer", "grüße", peer="127.0.0.1:9", error=OSError("x")) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "tidelog.test",
        "message": 'peer said "grüße"\n',
        "node": 7,
        "peer": "127.0.0.1:9",
        "error": "x",
    }


def test_an_event_cannot_overwrite_what_every_line_has() -> None:
    assert line_of("x", node=8, level="none")["node"] == 7


def test_tracebacks_are_a_field() -> None:
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError:
        line = line_of("it failed", exc_info=sys.exc_info())
    assert "ZeroDivisionError: by zero" in str(line["traceback"])


def test_what_is_told_seldom_tells_how_much_was_not() -> None:
    now = 100.0
    seldom = Seldom(10.0, lambda: now)
    assert [seldom.suppressed() for _ in range(4)] == [0, None, None, None]
    now = 110.0
    assert seldom.suppressed() == 3
    now = 125.0
    assert seldom.suppressed() == 0


def test_slow_is_what_took_long_but_not_what_waited_on_purpose() -> None:
    log = SlowRequestLog(100)
    fetch, produce = api(ApiKey.FETCH), api(ApiKey.PRODUCE)
    assert not log.is_slow(fetch, Phases(0, 99 * MS, 500 * MS))
    assert log.is_slow(fetch, Phases(60 * MS, 40 * MS, 0))
    assert log.is_slow(produce, Phases(0, 0, 100 * MS))
    assert not log.is_slow(produce, Phases(33 * MS, 33 * MS, 33 * MS))


def test_a_slow_request_is_a_line_with_its_phases(caplog: pytest.LogCaptureFixture) -> None:
    log = SlowRequestLog(100)
    header = RequestHeader(0, 9, 1, "c" * 5_000, None)
    for _ in range(50):
        log.log(api(ApiKey.PRODUCE), header, "10.0.0.1:5", Phases(1 * MS, 200 * MS, 3 * MS), (1_000, 50))
    (record,) = caplog.records
    assert len(record.getMessage()) < 500
    assert "slow: Produce v9" in record.getMessage()
    assert (
        "204.000 ms: 1.0 in the queue, 200.0 handled, 3.0 waiting; 1000 bytes asked, 50 answered" in record.getMessage()
    )
    assert (record.__dict__["api"], record.__dict__["handle_ms"]) == ("Produce", 200.0)
