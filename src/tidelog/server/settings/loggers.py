"""The levels of this node's loggers, as Kafka's tools name them: told and changed while it runs, and kept nowhere.

Kafka: `LoggingController`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidelog.base.errors import Code, refusal
from tidelog.controller import ConfigChange, ConfigOperation

ROOT = "root"
OWN = "tidelog"
TRACE = 5
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


def logger_levels() -> dict[str, str]:
    """Every logger of ours and the root of all, with the level that is in force, by name."""
    known = logging.Logger.manager.loggerDict
    names = [name for name in known if name == OWN or name.startswith(f"{OWN}.")]
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in sorted({ROOT, OWN, *names})}


def alter_loggers(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """Set levels, or take them back (then the logger above counts).

    Raises:
        KafkaError: INVALID_CONFIG: there is no such logger or level; INVALID_REQUEST: it is neither SET nor DELETE.
            Nothing was changed.
    """
    known = logger_levels()
    levels: dict[str, int] = {}
    for change in changes:
        name = change.name
        if name in levels:
            raise refusal(Code.INVALID_REQUEST, f"logger {name} is named more than once")
        if name not in known:
            raise refusal(Code.INVALID_CONFIG, f"there is no logger {name!r}; there are {', '.join(known)}")
        if change.operation == ConfigOperation.DELETE:
            if name == ROOT:
                raise refusal(Code.INVALID_REQUEST, "the root logger needs a level: set another one")
            levels[name] = logging.NOTSET
        elif change.operation == ConfigOperation.SET:
            level = LEVELS.get((change.value or "").strip().upper())
            if level is None:
                raise refusal(
                    Code.INVALID_CONFIG, f"{name}: {change.value!r} is no level; the levels are {', '.join(LEVELS)}"
                )
            levels[name] = level
        else:
            raise refusal(Code.INVALID_REQUEST, f"{name}: a level can be set or deleted, and is no list")
    if not validate_only:
        for name, level in levels.items():
            _logger(name).setLevel(level)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")
