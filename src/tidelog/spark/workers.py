"""What is particular to Spark's own Python processes: what they print, and how they word errors.

Spark starts a process that plans (one for each streaming query) and others that read. Their stderr is that of the
JVM beside them: what the planner prints is in the driver's log.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.base.errors import InvariantBrokenError, TidelogError

logger = logging.getLogger("tidelog")

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME = "%y/%m/%d %H:%M:%S"
_LEVELS = {logging.WARNING: "WARN"}
"""Where Spark's log has another word."""


class _SparkFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.levelname = _LEVELS.get(record.levelno, record.levelname)
        return super().format(record)


_has_frozen = False

_HIDES_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def is_worker() -> bool:
    """Whether Spark started this process."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def spare_modules_from_collection() -> None:
    """Leave what is loaded now out of garbage collections, once in a worker of Spark.

    Spark collects garbage after each task of a worker it uses again. Each time that takes longer than reading a few
    records does, for the sake of modules, which never become garbage.
    """
    global _has_frozen  # noqa: PLW0603
    if not _has_frozen and is_worker():
        _has_frozen = True  # counting what is frozen would walk over all of it after each task
        gc.freeze()


def log_to_stderr() -> None:
    """Print warnings as Spark's own log looks, unless somebody has set up logging in this process."""
    if is_worker() and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_SparkFormatter(_LINE, _TIME))
        logger.addHandler(handler)


@contextmanager
def worded_errors() -> Iterator[None]:
    """Let an error of ours reach Spark as its text alone.

    Spark puts the traceback before it otherwise, sixty lines that say where in our code a refusal was worded. It asks
    this variable of its own, as it does when `spark.sql.execution.pyspark.udf.hideTraceback.enabled` is set. The
    process ends with the error. A bug of ours keeps its traceback. Logging at level DEBUG prints all.
    """
    try:
        yield
    except TidelogError as error:
        if is_worker() and not isinstance(error, InvariantBrokenError):
            logger.debug("%s", error, exc_info=True)
            os.environ[_HIDES_TRACEBACK] = "1"
        raise
