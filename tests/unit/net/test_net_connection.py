"""One connection against peers that answer well, late, wrongly, or not at all."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.fixtures.scripted_broker import HANG_UP, SILENT, ScriptedBroker
from tidelog.base.errors import NetworkError, UnsupportedVersionError
from tidelog.client.consistency import ConsistencyContext, ConsistencyContextStore
from tidelog.io.network import RealNetwork
from tidelog.net.address import Address
from tidelog.net.connection import Connection, ConnectionSettings, open_connection
from tidelog.wire import ApiKey, ConsistencyState
from tidelog.wire.messages.api_01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.api_18_api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey

SETTINGS = ConnectionSettings(client_id="test", connect_timeout_ms=5_000)


def run(work: Callable[[ScriptedBroker], Coroutine[Any, Any, None]]) -> None:
    async def do() -> None:
        async with ScriptedBroker() as broker:
            await work(broker)

    asyncio.run(do())


async def connect(broker: ScriptedBroker, settings: ConnectionSettings = SETTINGS) -> Connection:
    return await open_connection(RealNetwork(), Address("127.0.0.1", broker.port), settings)


def metadata(cluster_id: str) -> MetadataResponse:
    return MetadataResponse(cluster_id=cluster_id)


async def ask(connection: Connection, timeout_ms: int = 5_000) -> MetadataResponse:
    return await connection.request(MetadataRequest(topics=[]), MetadataResponse, timeout_ms=timeout_ms)


def test_requests_are_answered_in_order_however_many_are_in_flight() -> None:
    async def work(broker: ScriptedBroker) -> None:
        names = iter("abcdefgh")
        broker.on(ApiKey.METADATA, lambda request, version: metadata(next(names)))
        connection = await connect(broker)
        answers = await asyncio.gather(*(ask(connection) for _ in range(8)))
        assert [answer.cluster_id for answer in answers] == list("abcdefgh")
        assert broker.client_ids[-1] == "test"
        assert connection.in_flight == 0
        connection.close()

    run(work)


@pytest.mark.parametrize(("epoch", "known"), [(7, {"transaction.version": 2}), (-1, {})])
def test_the_handshake_learns_which_features_are_finalized_if_the_broker_knows(
    epoch: int, known: dict[str, int]
) -> None:
    async def work(broker: ScriptedBroker) -> None:
        answer = ApiVersionsResponse(
            api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 4)],
            finalized_features_epoch=epoch,
            finalized_features=[FinalizedFeatureKey("transaction.version", 2, 0)],
        )
        broker.on(ApiKey.API_VERSIONS, lambda request, version: answer)
        connection = await connect(broker)
        assert connection.versions.features == known
        connection.close()

    run(work)


def test_the_handshake_learns_what_the_broker_serves() -> None:
    async def work(broker: ScriptedBroker) -> None:
        broker.versions[ApiKey.METADATA] = (0, 7)
        broker.on(ApiKey.METADATA, lambda request, version: metadata("c"))
        connection = await connect(broker)
        await ask(connection)
        assert broker.requests[-1][:2] == (ApiKey.METADATA, 7)
        [hello] = broker.messages(ApiKey.API_VERSIONS)
        assert hello.client_software_name == "tidelog"
        connection.close()

    run(work)


def test_an_older_broker_is_asked_again_in_a_version_that_it_serves() -> None:
    async def work(broker: ScriptedBroker) -> None:
        def answer(request: object, version: int) -> object:
            if version > 2:
                row = struct.pack(">ihhh", 1, ApiKey.API_VERSIONS, 0, 2)
                body = struct.pack(">ih", 0, 35) + row
                return struct.pack(">i", len(body)) + body
            return ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.METADATA, 0, 5)])

        broker.on(ApiKey.API_VERSIONS, answer)
        connection = await connect(broker)
        assert [version for _, version, _ in broker.requests] == [4, 2]
        assert connection.versions.version(ApiKey.METADATA) == 5
        with pytest.raises(UnsupportedVersionError, match="does not serve Fetch"):
            connection.versions.version(ApiKey.FETCH)
        connection.close()

    run(work)


def test_nobody_listening_names_the_address_and_the_reason() -> None:
    async def work(broker: ScriptedBroker) -> None:
        await broker.stop()
        with pytest.raises(NetworkError, match=rf"127\.0\.0\.1:{broker.port}: connection refused"):
            await connect(broker)

    run(work)


def test_a_name_that_does_not_exist_is_said() -> None:
    async def work(broker: ScriptedBroker) -> None:
        with pytest.raises(NetworkError, match=r"no\.such\.host\.invalid:9: the name cannot be resolved"):
            await open_connection(RealNetwork(), Address("no.such.host.invalid", 9), SETTINGS)

    run(work)


def test_a_peer_that_never_answers_the_handshake_is_given_up() -> None:
    async def work(broker: ScriptedBroker) -> None:
        broker.on(ApiKey.API_VERSIONS, lambda request, version: SILENT)
        with pytest.raises(NetworkError, match=r"no answer within 50 ms|did not answer ApiVersions within 50 ms"):
            await connect(broker, ConnectionSettings(client_id="test", connect_timeout_ms=50))

    run(work)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HANG_UP, "closed the connection with 1 requests unanswered"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is this a Kafka port"),
        (struct.pack(">i", 2) + b"xx", "what is no answer: response header"),
        (struct.pack(">ii", 6, 1) + b"\xff\xff", "what is no answer"),
        (struct.pack(">iib", 5, 77, 0), "correlation id 77, where 1 is due"),
    ],
)
def test_what_is_no_answer_ends_the_connection_and_says_why(answer: object, why: str) -> None:
    async def work(broker: ScriptedBroker) -> None:
        broker.on(ApiKey.METADATA, lambda request, version: answer)
        connection = await connect(broker)
        with pytest.raises(NetworkError, match=why) as error:
            await ask(connection)
        assert str(connection.address) in str(error.value)
        with pytest.raises(NetworkError, match=why):  # and so it says to whoever comes later
            await ask(connection)

    run(work)


def test_all_that_is_in_flight_fails_together() -> None:
    async def work(broker: ScriptedBroker) -> None:
        answers = iter([metadata("first"), HANG_UP])
        broker.on(ApiKey.METADATA, lambda request, version: next(answers))
        connection = await connect(broker)
        found = await asyncio.gather(*(ask(connection) for _ in range(3)), return_exceptions=True)
        assert isinstance(found[0], MetadataResponse)
        assert [type(failed) for failed in found[1:]] == [NetworkError, NetworkError]
        assert connection.in_flight == 0

    run(work)


def test_an_answer_with_another_correlation_id_is_not_taken_for_ours() -> None:
    async def work(broker: ScriptedBroker) -> None:
        broker.on(ApiKey.METADATA, lambda request, version: metadata("c"))
        connection = await connect(broker)
        broker.correlation_shift = 1
        with pytest.raises(NetworkError, match="correlation id 2, where 1 is due"):
            await ask(connection)

    run(work)


def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    async def work(broker: ScriptedBroker) -> None:
        broker.on(ApiKey.METADATA, lambda request, version: struct.pack(">iii", 4, 5, 4) + b"more" * 3)
        connection = await connect(broker)
        with pytest.raises(NetworkError):
            await ask(connection)

    run(work)


def test_a_request_that_takes_too_long_closes_the_connection() -> None:
    async def work(broker: ScriptedBroker) -> None:
        broker.on(ApiKey.METADATA, lambda request, version: SILENT)
        connection = await connect(broker)
        patient = asyncio.ensure_future(ask(connection, timeout_ms=60_000))
        with pytest.raises(NetworkError, match="did not answer Metadata within 30 ms"):
            await ask(connection, timeout_ms=30)
        with pytest.raises(NetworkError, match="did not answer Metadata within 30 ms"):
            await patient  # what is behind it on the connection could never be told apart

    run(work)


def test_whoever_stops_waiting_disturbs_nobody() -> None:
    async def work(broker: ScriptedBroker) -> None:
        go = asyncio.Event()
        names = iter("abc")

        async def answer(request: object, version: int) -> MetadataResponse:
            await go.wait()
            return metadata(next(names))

        broker.on(ApiKey.METADATA, answer)
        connection = await connect(broker)
        first, second = asyncio.ensure_future(ask(connection)), asyncio.ensure_future(ask(connection))
        while connection.in_flight < 2:
            await asyncio.sleep(0)
        first.cancel()
        go.set()
        assert (await second).cluster_id == "b"
        connection.close()

    run(work)


def test_what_a_fetch_brought_stays_as_it_is_while_more_comes() -> None:
    async def work(broker: ScriptedBroker) -> None:
        sizes = iter([100_000, 50_000, 100_000])

        def answer(request: object, version: int) -> FetchResponse:
            size = next(sizes)
            data = PartitionData(0, records=bytes([size // 1000 & 0xFF]) * size)
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

        broker.on(ApiKey.FETCH, answer)
        connection = await connect(broker)
        kept = []
        for _ in range(3):
            request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
            response = await connection.request(request, FetchResponse, timeout_ms=5_000)
            records = response.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            kept.append(records)
        assert [(len(found), set(bytes(found))) for found in kept] == [
            (100_000, {100}), (50_000, {50}), (100_000, {100})
        ]  # fmt: skip
        connection.close()

    run(work)


def test_a_response_larger_than_the_limit_is_refused() -> None:
    async def work(broker: ScriptedBroker) -> None:
        broker.on(ApiKey.METADATA, lambda request, version: metadata("c" * 5_000))
        settings = ConnectionSettings(client_id="test", response_size_bytes_max=4_000)
        connection = await connect(broker, settings)
        with pytest.raises(NetworkError, match="at most 4000 are accepted"):
            await ask(connection)

    run(work)


def test_requests_carry_the_latest_consistency_token_and_answers_bring_a_later_one() -> None:
    async def work(broker: ScriptedBroker) -> None:
        store = ConsistencyContextStore(ConsistencyContext("c", 7))
        broker.on(ApiKey.METADATA, lambda request, version: metadata("c"))
        connection = await connect(broker, ConnectionSettings(client_id="test", consistency=store))
        broker.token = ConsistencyState("c", 9)
        await ask(connection)
        assert broker.tokens[-1] == ConsistencyState("c", 7)
        assert store.read() == ConsistencyContext("c", 9)
        broker.token = ConsistencyState("other", 1)
        with pytest.raises(Exception, match="clients of different clusters cannot share one"):
            await ask(connection)

    run(work)


def test_it_works_on_uvloop_and_on_asyncios_own_loop_alike() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def work() -> None:
        async with ScriptedBroker() as broker:
            broker.on(ApiKey.METADATA, lambda request, version: metadata("c"))
            connection = await connect(broker)
            assert (await ask(connection)).cluster_id == "c"
            broker.hang_up()
            with pytest.raises(NetworkError):
                await ask(connection)

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work())


def test_of_several_answers_that_do_not_come_it_is_enough_to_look_at_the_first() -> None:
    async def work(broker: ScriptedBroker) -> None:
        broker.on(ApiKey.METADATA, lambda request, version: SILENT)
        connection = await connect(broker)
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: complaints.append(told))
        first, second = (
            connection.send(MetadataRequest(topics=[]), MetadataResponse, timeout_ms=5_000) for _ in range(2)
        )
        connection.close()
        with pytest.raises(NetworkError):
            await first
        del first, second
        gc.collect()
        assert complaints == []

    run(work)
