"""What the settings of a topic say about its logs."""

from __future__ import annotations

import pytest

from tidelog.log import LogConfig
from tidelog.metadata.configs import BrokerSettings, topic_values
from tidelog.records.compression import COMPRESSION_IDS
from tidelog.server.settings.log_settings import log_config

NOTHING = BrokerSettings.of({})
GZIP, LZ4, NONE, ZSTD = (COMPRESSION_IDS[name] for name in ("gzip", "lz4", "none", "zstd"))


def config_of(configs: dict[str, str], broker: BrokerSettings = NOTHING) -> LogConfig:
    return log_config(topic_values(configs, broker), broker)


def test_a_log_has_the_defaults_of_the_table() -> None:
    assert config_of({}) == LogConfig()


def test_each_setting_is_read_and_what_is_no_limit_is_none() -> None:
    config = config_of(
        {
            "segment.bytes": "1048576",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "flush.messages": str(2**63 - 1),
            "flush.ms": "50",
            "cleanup.policy": "compact, delete",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.after.max.ms": str(2**63 - 1),
            "unclean.leader.election.enable": "true",
        },
        BrokerSettings({}, {"producer.id.expiration.ms": "7"}, {}),
    )
    assert config == LogConfig(
        segment_size_bytes=1048576,
        retention_ms=None,
        retention_size_bytes=None,
        flush_messages=None,
        flush_ms=50,
        cleanup_policy=frozenset({"compact", "delete"}),
        message_timestamp_type="LogAppendTime",
        message_timestamp_after_ms_max=None,
        producer_id_expiration_ms=7,
    )
    assert config_of({"cleanup.policy": ""}).cleanup_policy == frozenset()


@pytest.mark.parametrize(
    ("configs", "codec", "level"),
    [
        ({"compression.type": "producer", "compression.gzip.level": "-1"}, None, None),
        ({"compression.type": "uncompressed"}, NONE, None),
        ({"compression.type": "gzip", "compression.gzip.level": "-1"}, GZIP, None),
        ({"compression.type": "gzip", "compression.gzip.level": "9", "compression.zstd.level": "3"}, GZIP, 9),
        ({"compression.type": "zstd", "compression.zstd.level": "-1"}, ZSTD, -1),
        ({"compression.type": "lz4", "compression.lz4.level": "9"}, LZ4, 1),
        ({"compression.type": "lz4", "compression.lz4.level": "2"}, LZ4, 3),
        ({"compression.type": "lz4", "compression.lz4.level": "17"}, LZ4, 17),
    ],
)
def test_the_codec_has_its_own_level(configs: dict[str, str], codec: int | None, level: int | None) -> None:
    config = config_of(configs)
    assert (config.compression_codec, config.compression_level) == (codec, level)
