"""Which state is meant: that of one share group in one partition.

Kafka: `SharePartitionKey`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import PartitionIndex, TopicId, parse_uuid, uuid_text

INDEX = re.compile(r"\d{1,10}", re.ASCII)


class ShareKey(NamedTuple):
    """A share group and a partition. As text, `group:topicId:partition`: a group's name may hold colons."""

    group_id: str
    topic_id: TopicId
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"

    @staticmethod
    def parse(text: str) -> ShareKey:
        """The inverse of `str`.

        Raises:
            KafkaError: INVALID_REQUEST: it is no such text.
        """
        rest, _, partition = text.rpartition(":")
        group_id, _, topic_id = rest.rpartition(":")
        try:
            if not group_id.strip() or not INDEX.fullmatch(partition):
                raise ValueError(partition)
            return ShareKey(group_id, TopicId(parse_uuid(topic_id)), PartitionIndex(int(partition)))
        except ValueError as error:
            raise refusal(
                Code.INVALID_REQUEST, f"{text!r} is no partition of a share group: group:topicId:partition is expected"
            ) from error
