"""What a client believes never goes back."""

from __future__ import annotations

from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicId, TopicPartition
from tidelog.client.core.metadata_cache import MetadataCache
from tidelog.wire.messages.api_03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

P0 = TopicPartition("t", PartitionIndex(0))


def answer(
    leader: int = 1, epoch: int = 5, topic_id: int = 7, partitions: int = 1, code: Code = Code.NONE
) -> MetadataResponse:
    rows = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index in range(partitions)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(1, "h", 1), MetadataResponseBroker(2, "h", 2)],
        cluster_id="c",
        controller_id=2,
        topics=[MetadataResponseTopic(name="t", topic_id=UUID(int=topic_id), error_code=code, partitions=rows)],
    )


def believed(cache: MetadataCache) -> tuple[int | None, int | None]:
    view = cache.partition(P0)
    assert view is not None
    return view.leader_id, view.leader_epoch


def test_an_answer_is_taken_over_and_says_what_it_changed() -> None:
    cache = MetadataCache()
    changes = cache.on_metadata(answer(), requested=["t"])
    assert changes.topics == {"t"}
    assert changes.leaders == {P0}
    assert (cache.cluster_id, cache.controller_id, set(cache.brokers)) == ("c", 2, {1, 2})
    assert cache.topic_id("t") == UUID(int=7)
    assert not cache.on_metadata(answer(), requested=["t"])


def test_an_older_leader_epoch_of_the_same_topic_is_not_believed() -> None:
    cache = MetadataCache()
    cache.on_metadata(answer(leader=2, epoch=6), requested=["t"])
    assert not cache.on_metadata(answer(leader=1, epoch=5), requested=["t"])
    assert believed(cache) == (2, 6)
    assert cache.on_metadata(answer(leader=1, epoch=7), requested=["t"]).leaders == {P0}
    assert believed(cache) == (1, 7)


def test_no_leader_is_no_rewind() -> None:
    cache = MetadataCache()
    cache.on_metadata(answer(epoch=6), requested=["t"])
    cache.on_metadata(answer(leader=-1, epoch=-1), requested=["t"])
    assert believed(cache) == (None, 6)
    assert cache.why_missing(P0) is Code.LEADER_NOT_AVAILABLE


def test_a_recreated_topic_may_have_a_lower_epoch_and_its_old_id_never_comes_back() -> None:
    cache = MetadataCache()
    cache.on_metadata(answer(epoch=6, topic_id=7), requested=["t"])
    assert cache.on_metadata(answer(epoch=0, topic_id=8), requested=["t"]).topics == {"t"}
    assert believed(cache) == (1, 0)
    assert not cache.on_metadata(answer(epoch=6, topic_id=7), requested=["t"])
    assert cache.topic_id("t") == TopicId(UUID(int=8))
    assert believed(cache) == (1, 0)


def test_a_topic_that_is_gone_is_forgotten_with_the_reason() -> None:
    cache = MetadataCache()
    cache.on_metadata(answer(), requested=["t"])
    changes = cache.on_metadata(answer(code=Code.UNKNOWN_TOPIC_OR_PARTITION, partitions=0), requested=["t"])
    assert changes.topics == {"t"}
    assert cache.partition(P0) is None
    assert cache.why_missing(P0) is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_that_passes_keeps_what_is_known() -> None:
    cache = MetadataCache()
    cache.on_metadata(answer(), requested=["t"])
    cache.on_metadata(answer(code=Code.LEADER_NOT_AVAILABLE, partitions=0), requested=["t"])
    assert believed(cache) == (1, 5)


def test_asking_for_all_forgets_those_that_are_not_there() -> None:
    cache = MetadataCache()
    cache.on_metadata(answer(), requested=["t"])
    response = answer()
    response.topics = []
    assert cache.on_metadata(response, requested=["other"]).topics == set()
    assert cache.on_metadata(response, requested=None).topics == {"t"}


def test_a_topic_that_grew_is_said_to_have_changed() -> None:
    cache = MetadataCache()
    cache.on_metadata(answer(partitions=1), requested=["t"])
    changes = cache.on_metadata(answer(partitions=3), requested=["t"])
    assert changes.topics == {"t"}
    assert {partition for _, partition in changes.leaders} == {1, 2}


def test_brokers_that_tell_no_ids_and_no_epochs_are_believed_as_they_are() -> None:
    cache = MetadataCache()
    cache.on_metadata(answer(topic_id=0, epoch=-1), requested=["t"])
    assert cache.topic_id("t") is None
    assert believed(cache) == (1, None)
    cache.on_metadata(answer(leader=2, topic_id=0, epoch=-1), requested=["t"])
    assert believed(cache) == (2, None)
