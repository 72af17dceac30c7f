"""What production code says of itself while a run goes on: it logs its bugs, closes a connection, and carries on.

So clients try again, and nobody outside would notice. Here it is taken down, whether or not anything is printed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_tb

from tidelog.base.errors import InvariantBrokenError, TidelogError
from tidelog.sim.world.process import CURRENT

LOGGER = "tidelog"


def words_of(error: BaseException) -> str:
    """What was raised, and where."""
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.name != "invariant"]
    where = f", in {frames[-1].name} ({frames[-1].line})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


class OwnBugs(logging.Handler):
    """Notes errors that are logged with what was raised, unless that is a refusal or the world's.

    Attributes:
        told: what was raised, in words, in order.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT.get()
        if process is not None and not process.is_alive:
            return  # it is being buried, and takes that for a bug
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and (isinstance(error, InvariantBrokenError) or not isinstance(error, TidelogError)):
            self.told.append(words_of(error))


@contextmanager
def noting_own_bugs() -> Iterator[OwnBugs]:
    """Note them from here to the end of the block. Where errors are not logged at all, they still are not printed."""
    logger, bugs = logging.getLogger(LOGGER), OwnBugs()
    level, propagates = logger.level, logger.propagate
    others = logger.handlers[:]
    if not logger.isEnabledFor(logging.ERROR):
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        logger.handlers.clear()
    logger.addHandler(bugs)
    try:
        yield bugs
    finally:
        logger.handlers[:] = others
        logger.propagate = propagates
        logger.setLevel(level)
