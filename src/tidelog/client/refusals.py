"""What brokers refuse, as errors."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.errors import Code, KafkaError, TopicAlreadyExistsError, UnknownTopicError
from tidelog.client.core.values import code_of

_CLASSES: dict[Code, type[KafkaError]] = {
    Code.TOPIC_ALREADY_EXISTS: TopicAlreadyExistsError,
    Code.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
}


def refused(number: int, what: str, message: str | None) -> KafkaError | None:
    """The error of an answer's code; None if there is none.

    Args:
        number: as it came.
        what: was refused, as in "topic 'flights'".
        message: the broker's own words, if it had any.
    """
    code = code_of(number)
    if code is Code.NONE:
        return None
    said = message or code.meaning
    if not said.startswith(what):
        said = f"{what}: {said}"
    return _CLASSES.get(code, KafkaError)(f"{said} ({code.name})", code=code)


def raise_first(errors: Iterable[KafkaError | None]) -> None:
    """Raise the first error, with the others as notes. Nothing happens if there is none."""
    found = [error for error in errors if error is not None]
    if found:
        for other in found[1:]:
            found[0].add_note(f"also refused: {other}")
        raise found[0]
