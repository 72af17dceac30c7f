"""Whether the topic of decisions keeps them, as far as the brokers say."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog import ConfigResource
from tidelog.base.errors import Code, refusal
from tidelog.spark.decision_log import TOPIC, DecisionLog
from tidelog.spark.sink_decisions import SinkStateError


class Entry:
    def __init__(self, value: str | None) -> None:
        self.value = value


class AnsweringAdmin:
    """Answers as the brokers would, of a topic that is there."""

    def __init__(self, answer: dict[str, Entry] | Exception) -> None:
        self.answer = answer

    def describe_topics(self, names: list[str]) -> dict[str, object]:
        return dict.fromkeys(names, object())

    def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, dict[str, Entry]]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict.fromkeys(resources, self.answer)


def finds_topic(answer: dict[str, Entry] | Exception) -> bool:
    log = DecisionLog({"bootstrap_servers": "h:1"})
    admin: Any = AnsweringAdmin(answer)
    log._admin = admin
    return log._has_topic()


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact"])
def test_a_topic_that_forgets_is_refused(policy: str) -> None:
    with pytest.raises(SinkStateError, match=rf"\[SINK_DECISIONS_NOT_KEPT\] .* cleanup.policy={policy},"):
        finds_topic({"cleanup.policy": Entry(policy)})


def test_a_topic_that_is_compacted_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    assert finds_topic({"cleanup.policy": Entry("compact")})
    assert not caplog.text


@pytest.mark.parametrize(
    "answer", [{}, {"cleanup.policy": Entry(None)}, refusal(Code.TOPIC_AUTHORIZATION_FAILED, "no right")]
)
def test_where_the_policy_is_not_known_the_log_says_so(
    answer: dict[str, Entry] | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Services that speak the protocol may leave configurations out of their answers."""
    assert finds_topic(answer)
    assert f"whether topic {TOPIC} keeps what sinks decide is not known" in caplog.text
