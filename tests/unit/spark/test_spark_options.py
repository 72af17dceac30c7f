from __future__ import annotations

import pytest

from tidelog.base.errors import ConfigError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.spark.options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    BatchLimits,
    Retries,
    Topics,
    duration_ms,
    optional_columns,
    sink_options,
    source_options,
)
from tidelog.spark.plan import EARLIEST, LATEST, Bound
from tidelog.spark.truncation import OnTruncation

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
MINIMAL = {**BROKER, "subscribe": "t"}


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", PartitionIndex(number))


def test_defaults_are_those_of_the_connector() -> None:
    stream = source_options(MINIMAL, streaming=True)
    assert stream.start == Bound("startingOffsets", LATEST)
    assert stream.on_truncation is OnTruncation.FAIL
    assert stream.topics == Topics(names=("t",))
    assert stream.limits == BatchLimits()
    assert stream.limits.batch_delay_ms_max == 900_000
    assert stream.retries == Retries(poll_timeout_ms=120_000, tries=None, pause_ms=100)
    assert not stream.include_headers
    assert not stream.clamp
    batch = source_options(MINIMAL, streaming=False)
    assert batch.start == Bound("startingOffsets", EARLIEST)
    assert batch.end == Bound("endingOffsets", LATEST, latest_without_match=False)


def test_names_are_not_case_sensitive() -> None:
    options = source_options(
        {"KAFKA.bootstrap.SERVERS": "h:1", "SUBSCRIBE": "t", "includeheaders": "TRUE"}, streaming=True
    )
    assert options.include_headers
    assert options.client["bootstrap_servers"] == "h:1"


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ({"subscribe": "b, a,b"}, Topics(names=("b", "a"))),
        ({"subscribePattern": "a.*"}, Topics(pattern="a.*")),
        ({"assign": '{"t": [0, 3]}'}, Topics(partitions=frozenset({tp(0), tp(3)}))),
    ],
)
def test_topics(given: dict[str, str], topics: Topics) -> None:
    assert source_options({**BROKER, **given}, streaming=True).topics == topics


def test_selection() -> None:
    existing = ["abc", "ab", "xabc"]
    assert Topics(pattern="ab.?").select(existing) == ["ab", "abc"]
    assert Topics(names=("z", "ab")).select(existing) == ["ab", "z"]
    assigned = Topics(partitions=frozenset({tp(0), tp(3)}))
    assert assigned.select(existing) == ["t"]
    assert assigned.includes(tp(3))
    assert not assigned.includes(tp(1))
    assert Topics(names=("t",)).includes(tp(1))


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"startingOffsets": "earliest"}, Bound("startingOffsets", EARLIEST)),
        ({"startingOffsets": "Latest"}, Bound("startingOffsets", LATEST)),
        (
            {"startingOffsets": '{"t":{"0":23,"1":-2}}'},
            Bound("startingOffsets", LATEST, offsets={tp(0): 23, tp(1): -2}),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":23}}', "startingOffsets": "earliest"},
            Bound("startingOffsetsByTimestamp", LATEST, timestamps_ms={tp(0): 23}),
        ),
        (
            {"startingTimestamp": "99", "startingOffsetsByTimestamp": '{"t":{"0":23}}'},
            Bound("startingTimestamp", LATEST, timestamp_ms=99),
        ),
        (
            {"startingTimestamp": "99", "startingOffsetsByTimestampStrategy": "latest"},
            Bound("startingTimestamp", LATEST, timestamp_ms=99, latest_without_match=True),
        ),
    ],
)
def test_precedence_of_the_start(given: dict[str, str], bound: Bound) -> None:
    assert source_options({**MINIMAL, **given}, streaming=True).start == bound


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"endingOffsets": '{"t":{"0":-1,"1":7}}'}, Bound("endingOffsets", LATEST, offsets={tp(0): -1, tp(1): 7})),
        (
            {"endingTimestamp": "5", "endingOffsets": "latest"},
            Bound("endingTimestamp", LATEST, timestamp_ms=5, latest_without_match=True),
        ),
        (
            {"endingOffsetsByTimestamp": '{"t":{"0":5}}'},
            Bound("endingOffsetsByTimestamp", LATEST, timestamps_ms={tp(0): 5}, latest_without_match=True),
        ),
    ],
)
def test_precedence_of_the_end(given: dict[str, str], bound: Bound) -> None:
    assert source_options({**MINIMAL, **given}, streaming=False).end == bound


@pytest.mark.parametrize(
    ("given", "policy", "clamp"),
    [
        ({}, OnTruncation.FAIL, False),
        ({"failOnDataLoss": "false"}, OnTruncation.REWIND, True),
        ({"failOnDataLoss": "true", "onTruncation": "earliest"}, OnTruncation.EARLIEST, False),
        ({"failOnDataLoss": "false", "onTruncation": "fail"}, OnTruncation.FAIL, True),
        ({"onTruncation": "Latest"}, OnTruncation.LATEST, False),
    ],
)
def test_an_explicit_policy_wins(given: dict[str, str], policy: OnTruncation, clamp: bool) -> None:
    options = source_options({**MINIMAL, **given}, streaming=True)
    assert (options.on_truncation, options.clamp) == (policy, clamp)


def test_limits_and_retries() -> None:
    options = source_options(
        {
            **MINIMAL,
            "minPartitions": "4",
            "maxRecordsPerPartition": "5",
            "maxOffsetsPerTrigger": "6",
            "minOffsetsPerTrigger": "3",
            "maxTriggerDelay": "2 minutes",
            "kafkaConsumer.pollTimeoutMs": "8",
            "fetchOffset.numRetries": "0",
            "fetchOffset.retryIntervalMs": "9",
        },
        streaming=True,
    )
    assert options.limits == BatchLimits(4, 5, 6, 3, 120_000)
    assert options.retries == Retries(8, 0, 9)
    assert source_options({**MINIMAL, "fetchOffset.numRetries": "3"}, streaming=True).retries == Retries(120_000, 3, 10)


def test_client_settings_reach_the_client() -> None:
    options = source_options(
        {**MINIMAL, "kafka.fetch.max.bytes": "1000", "kafka.isolation.level": "read_committed", "kafka.group.id": "g"},
        streaming=True,
    )
    assert options.client == {
        "bootstrap_servers": "127.0.0.1:9092",
        "client_id": "g",
        "fetch_max_bytes": 1000,
        "isolation_level": "read_committed",
    }
    sink = sink_options({**BROKER, "topic": "t", "kafka.acks": "-1", "kafka.enable.idempotence": "false"})
    assert sink.client["acks"] == "all"
    assert sink.client["enable_idempotence"] is False


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"failOnDataLos": "true"}, "did you mean failOnDataLoss"),
        ({"nonsense": "1"}, "option nonsense is unknown; there are assign"),
        ({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"}, "is higher than maxOffsetsPerTrigger=2"),
        ({"strictOptions": "true", "topic": "t"}, "strictOptions, .* option topic: it is for the sink"),
        ({"strictOptions": "true", "kafka.retries": "3"}, r"option kafka\.retries: retries end with"),
        ({"assign": '{"t":[0]}'}, "exactly one .* there are assign and subscribe"),
        ({"startingOffsets": "earlist"}, "startingOffsets=earlist: a JSON object"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "t-0 cannot be at -3"),
        ({"startingOffsets": '{"t":{"x":3}}'}, "a partition and a number are expected"),
        ({"startingOffsets": '{"t":[3]}'}, "an object from partition to number"),
        ({"startingOffsets": "{}"}, "no partition is named"),
        ({"startingOffsets": ""}, "startingOffsets is empty"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp=yesterday: a number from 0"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "-1 is not a timestamp"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "one of error, latest"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"onTruncation": "ignore"}, "one of fail, rewind, earliest, latest"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "a number from 1"),
        ({"maxOffsetsPerTrigger": "1e6"}, "a number from 0"),
        ({"maxTriggerDelay": "soon"}, "a duration such as"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        ({"kafka.fetch.maxbytes": "1"}, "did you mean kafka.fetch.max.bytes"),
        ({"kafka.fetch.max.bytes": "many"}, "kafka.fetch.max.bytes=many"),
        ({"strictOptions": "true", "kafka.acks": "all"}, r"option kafka\.acks: it is for writers"),
    ],
)
def test_what_a_stream_cannot_do(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        source_options({**MINIMAL, **given}, streaming=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**BROKER}, "exactly one .* none is given"),
        ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        ({**BROKER, "subscribe": " , "}, "no topic is named"),
        ({**BROKER, "subscribePattern": "("}, "not a regular expression"),
        ({**BROKER, "subscribePattern": "[a-z&&[^b]]"}, "the intersection && of classes .* cannot be said"),
        ({**MINIMAL, "strictOptions": "true", "maxTriggerDelay": "5m"}, "maxTriggerDelay: it is for streams"),
        ({**BROKER, "assign": '{"t": 3}'}, "a list of partition numbers"),
        ({**BROKER, "assign": '{"t": []}'}, "no partition is named"),
        ({**MINIMAL, "startingOffsets": "latest"}, "reads nothing"),
        ({**MINIMAL, "startingOffsets": '{"t":{"0":-1}}'}, "reads nothing"),
        ({**MINIMAL, "endingOffsets": "earliest"}, "nothing would be read"),
        ({**MINIMAL, "endingOffsets": '{"t":{"0":-2}}'}, "t-0 cannot be at -2"),
    ],
)
def test_what_a_batch_cannot_do(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        source_options(given, streaming=False)


def test_the_sink_has_options_of_its_own() -> None:
    sink = sink_options({**BROKER, "topic": "t", "checkpointLocation": "/c", "queryName": "q", "path": "/p"})
    assert (sink.topic, sink.include_headers) == ("t", True)
    assert sink_options(BROKER).topic is None
    with pytest.raises(ConfigError, match="did you mean topic"):
        sink_options({**BROKER, "topics": "t"})
    assert sink_options({**BROKER, "topic": "t", "subscribe": "t", "startingOffsets": "earliest"}).topic == "t"
    with pytest.raises(ConfigError, match=r"strictOptions, .* option subscribe: it is for the source"):
        sink_options({**BROKER, "topic": "t", "subscribe": "t", "strictOptions": "true"})
    with pytest.raises(ConfigError, match=r"kafka\.value\.serializer is not supported"):
        sink_options({**BROKER, "kafka.value.serializer": "x"})


@pytest.mark.parametrize("text", ["fail", "drop", "topic:dead.letters"])
def test_what_is_done_with_bad_rows(text: str) -> None:
    assert sink_options({**BROKER, "onBadRow": text.replace("drop", "DROP")}).on_bad_row == text


@pytest.mark.parametrize("text", ["skip", "topic", "topic:", "topic:a b", "topic:..", "drop:x"])
def test_what_cannot_be_done_with_bad_rows(text: str) -> None:
    with pytest.raises(ConfigError, match="fail, drop or topic:NAME is expected"):
        sink_options({**BROKER, "onBadRow": text})


def test_columns_are_known_before_the_rest_is_checked() -> None:
    assert optional_columns({"includeHeaders": "true"}) == {"include_headers": True, "include_leader_epoch": False}
    assert optional_columns({**BROKER, "includeLeaderEpoch": "TRUE"})["include_leader_epoch"]


def test_an_option_that_is_not_in_force_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        given = {"kafka.send.buffer.bytes": "12345", "kafka.client.dns.lookup": "use_all_dns_ips"}
        source_options({**MINIMAL, **given}, streaming=True)
    assert [one.getMessage() for one in caplog.records] == [
        "option kafka.send.buffer.bytes=12345 is not in force: the operating system chooses the size"
    ]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("90s", 90_000), ("15m", 900_000), ("1 hour", 3_600_000), ("2 days", 172_800_000), ("0s", 0)],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


def test_every_option_says_what_it_is() -> None:
    assert all({**SOURCE_OPTIONS, **SINK_OPTIONS}.values())
