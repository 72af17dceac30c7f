"""AlterShareGroupOffsets and DeleteShareGroupOffsets: one request names no more than is looked up in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from tidelog.base.errors import Code, refusal
from tidelog.metadata.features import SHARE_VERSION, SHARE_VERSION_SERVED
from tidelog.metadata.image import MetadataImage
from tidelog.server.api.handlers import api_91_alter_share_group_offsets as alter
from tidelog.server.api.handlers import api_92_delete_share_group_offsets as delete
from tidelog.wire.messages.api_91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from tidelog.wire.messages.api_92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)


@dataclass
class Node:
    """A node that coordinates no group."""

    image: MetadataImage

    @property
    def groups(self) -> Node:
        return self

    def submit(self, group_id: str, command: object) -> object:
        return refusal(Code.NOT_COORDINATOR)


def requests(count: int) -> list[tuple[Any, Any]]:
    names = [f"t{number}" for number in range(count)]
    topics = [AlterShareGroupOffsetsRequestTopic(name, []) for name in names]
    forgotten = [DeleteShareGroupOffsetsRequestTopic(name) for name in names]
    return [
        (alter.handle, AlterShareGroupOffsetsRequest(group_id="g", topics=topics)),
        (delete.handle, DeleteShareGroupOffsetsRequest(group_id="g", topics=forgotten)),
    ]


@pytest.mark.parametrize(("count", "code"), [(10_000, Code.NOT_COORDINATOR), (10_001, Code.INVALID_REQUEST)])
def test_topics_without_partitions_count_as_well(count: int, code: Code) -> None:
    node = Node(MetadataImage(features={SHARE_VERSION: SHARE_VERSION_SERVED}))
    for handle, request in requests(count):
        assert handle(cast(Any, node), request, cast(Any, None)).error_code == code
