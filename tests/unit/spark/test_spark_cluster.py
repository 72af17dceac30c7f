from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.base.errors import Code, KafkaError, NetworkError, TidelogError, TimedOutError, refusal
from tidelog.client.kafka_settings import admin_settings, client_settings
from tidelog.client.options import AdminConfig, ConsumerConfig, ProducerConfig, parse_options
from tidelog.spark.cluster import RealCluster
from tidelog.spark.options import source_options


def cluster(**options: str) -> RealCluster:
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", "fetchOffset.retryIntervalMs": "0"}
    return RealCluster(
        source_options({**given, **{k.replace("_", "."): v for k, v in options.items()}}, streaming=True)
    )


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [error] * times

    def work() -> str:
        if left:
            raise left.pop()
        return "done"

    return work


@pytest.mark.parametrize(
    "error",
    [
        NetworkError("gone"),
        TimedOutError("late"),
        refusal(Code.NOT_LEADER_OR_FOLLOWER),
        KafkaError(code=Code.FENCED_LEADER_EPOCH),
    ],
)
def test_what_passes_is_tried_again(error: Exception) -> None:
    assert cluster().patiently("look", failing(5, error)) == "done"


def test_patience_ends() -> None:
    assert cluster(fetchOffset_numRetries="3").patiently("look", failing(2, NetworkError("gone"))) == "done"
    with pytest.raises(TimedOutError, match=r"look: given up after 3 tries .*: gone\. Are the brokers up\?"):
        cluster(fetchOffset_numRetries="3").patiently("look", failing(3, NetworkError("gone")))
    # Of what a task waits for, planning knows nothing.
    assert cluster(kafkaConsumer_pollTimeoutMs="1").patiently("look", failing(3, NetworkError("gone"))) == "done"


@pytest.mark.parametrize("error", [refusal(Code.TOPIC_AUTHORIZATION_FAILED), TidelogError("no"), ValueError("no")])
def test_what_does_not_pass_is_raised_at_once(error: Exception) -> None:
    with pytest.raises(type(error)):
        cluster().patiently("look", failing(1, error))


def test_closing_what_never_connected_is_nothing() -> None:
    cluster().close()


def test_every_setting_is_one_of_our_clients() -> None:
    """The table of `kafka.*` options against the clients' own arguments, types and bounds included."""
    texts = {"isolation.level": "read_committed", "acks": "all", "compression.type": "zstd"}
    flags = {"allow.auto.create.topics", "check.crcs", "enable.idempotence"}
    for consumer, config in ((True, ConsumerConfig), (False, ProducerConfig)):
        from tidelog.client import kafka_settings as module

        table = {**module.SHARED, **(module.CONSUMER if consumer else module.PRODUCER)}
        given = {key: texts.get(key, "true" if key in flags else "1000") for key in table}
        settings = client_settings(given, consumer=consumer).arguments
        del settings["bootstrap_servers"]
        settings["client_id"] = str(settings["client_id"])
        parse_options(config, "client", settings)
        shared = admin_settings(settings)
        assert {"client_id", "request_timeout_ms"} < shared.keys() < settings.keys()
        parse_options(AdminConfig, "Admin", shared)
