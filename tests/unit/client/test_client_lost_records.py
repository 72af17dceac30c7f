"""Lost records as a client is given them: of every compression, without control records, none of them twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fixtures.logs import make_batch
from support.fixtures.model_cluster import ModelCluster
from support.fixtures.modelled_admin import in_turn, run
from tidelog import aio
from tidelog.base.errors import Code, KafkaError, MalformedBatchError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.base.losses import Loss, LossCause, ReplicaFate, ReplicaLoss
from tidelog.client.admin.loss_administration import keeper_of
from tidelog.client.admin.lost_records import end_of, lost_records
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_10003_fetch_lost_records as fetch_lost
from tidelog.wire.primitives import ZERO_UUID

LOSS = Loss("t", TopicId(ZERO_UUID), PartitionIndex(1), LeaderEpoch(9), LossCause.BY_OPERATOR, BrokerId(1), 0, ())


def cut(broker_id: int, kept_size_bytes: int) -> ReplicaLoss:
    return ReplicaLoss(BrokerId(broker_id), ReplicaFate.CUT, Offset(9), Offset(5), kept_size_bytes=kept_size_bytes)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_with_what_is_known_of_them(compression: str) -> None:
    page = make_batch("a", "b", base_offset=5, leader_epoch=3, producer_id=7, compression=compression)
    found = list(lost_records(LOSS, 2, page, 0))
    assert [(one.offset, one.value, one.key) for one in found] == [(5, b"a", b"k"), (6, b"b", b"k")]
    assert {(one.broker_id, one.topic, one.partition, one.leader_epoch, one.producer_id) for one in found} == {
        (2, "t", 1, 3, 7)
    }
    assert end_of(page) == 7


def test_what_was_kept_twice_is_given_once() -> None:
    page = make_batch("a", "b", base_offset=5) + make_batch("c", base_offset=7)
    assert [one.value for one in lost_records(LOSS, 2, page, 6)] == [b"b", b"c"]


def test_control_records_are_left_out() -> None:
    page = make_batch("a", base_offset=5) + make_batch("marker", base_offset=6, control=True)
    assert [one.value for one in lost_records(LOSS, 2, page, 0)] == [b"a"]
    assert end_of(page) == 7


def test_a_damaged_batch_is_an_error() -> None:
    page = make_batch("a")
    page[-1] ^= 1
    with pytest.raises(MalformedBatchError):
        list(lost_records(LOSS, 2, page, 0))


def test_who_keeps_most_is_asked() -> None:
    loss = replace(LOSS, replicas=(cut(1, 10), cut(2, 30), cut(3, 0)))
    assert (keeper_of(loss, None), keeper_of(loss, 3)) == (2, 3)
    with pytest.raises(KafkaError, match="no broker keeps records of loss t-1@9") as refused:
        keeper_of(replace(loss, replicas=(cut(3, 0),)), None)
    assert refused.value.code is Code.RESOURCE_NOT_FOUND


def test_pages_are_fetched_until_the_end() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        pages = [make_batch("a", "b", base_offset=5), make_batch("c", base_offset=7)]
        answers = [fetch_lost.FetchLostRecordsResponse(records=bytes(page)) for page in (*pages, b"")]
        cluster.on(ApiKey.FETCH_LOST_RECORDS, in_turn(*answers))
        found = [one.value async for one in admin.read_lost_records(LOSS, broker_id=1)]
        assert found == [b"a", b"b", b"c"]
        asked = [request.position for request in cluster.messages(ApiKey.FETCH_LOST_RECORDS)]
        assert asked == [0, len(pages[0]), len(pages[0]) + len(pages[1])]

    run(work)


def test_what_goes_while_it_is_read_is_an_error() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        gone = fetch_lost.FetchLostRecordsResponse(error_code=Code.RESOURCE_NOT_FOUND, error_message="they are gone")
        first = fetch_lost.FetchLostRecordsResponse(records=bytes(make_batch("a")))
        cluster.on(ApiKey.FETCH_LOST_RECORDS, in_turn(first, gone))
        records = admin.read_lost_records(LOSS, broker_id=1)
        assert (await anext(records)).value == b"a"
        with pytest.raises(KafkaError, match="lost records of t-1@9: they are gone"):
            await anext(records)

    run(work)
