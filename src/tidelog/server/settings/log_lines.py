"""What the node's own log looks like: lines of text or of JSON, one for each event; and no flood of them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

TEXT, JSON = "text", "json"

_TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(level: str, layout: str, *, node_id: int | None) -> None:
    """Log to stderr.

    Args:
        level: its name, in small letters.
        layout: TEXT or JSON.
        node_id: for each line of JSON, since a cluster's lines are mostly read together.
    """
    formatter = JsonLines(node_id) if layout == JSON else logging.Formatter(_TEXT_FORMAT)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler])


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, node, whatever the event was given by `extra`, traceback."""

    def __init__(self, node_id: int | None) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        import json  # for those who asked for it

        seconds = time.gmtime(record.created)
        line: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', seconds)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "node": self._node_id,
        }
        for key, value in vars(record).items():
            if key not in _STANDARD and key not in line:
                line[key] = value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class Seldom:
    """Lets one event in so many seconds be logged, and counts those in between.

    Args:
        now_seconds: a monotonic clock.
    """

    def __init__(self, interval_seconds: float, now_seconds: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._now_seconds = now_seconds
        self._next_seconds: float | None = None
        self._suppressed = 0

    def suppressed(self) -> int | None:
        """How many events were suppressed since the last one that was not; None if this one is to be suppressed too."""
        now = self._now_seconds()
        if self._next_seconds is not None and now < self._next_seconds:
            self._suppressed += 1
            return None
        self._next_seconds = now + self._interval_seconds
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
