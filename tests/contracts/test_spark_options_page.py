"""The page for whoever comes from Spark's connector names every option that there is, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.client import kafka_settings as client_settings
from tidelog.client.kafka_security import SECURITY_KEYS
from tidelog.spark.options import SINK_OPTIONS, SOURCE_OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "spark-from-kafka-connector.md"
OWN = "Options of Tidelog's own"
# KafkaSourceProvider of Spark 4.2: its options, as its documentation spells them.
OF_SPARK = {
    "assign", "subscribe", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
    "failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "includeHeaders", "groupIdPrefix",
}  # fmt: skip


def rows(title: str) -> list[list[str]]:
    """The first table below a heading, without its head."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None, title
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def names(title: str) -> set[str]:
    return {cells[0].strip("`") for cells in rows(title)}


def test_the_tables_have_every_option() -> None:
    own = {cells[0].strip("`"): cells[1] for cells in rows(OWN)}
    of_source = {name for name, where in own.items() if where in {"source", "both"}}
    of_sink = {name for name, where in own.items() if where in {"sink", "both"}}
    assert names("Options of the source") == OF_SPARK
    assert names("Options of the source") | of_source == SOURCE_OPTIONS.keys()
    assert names("Options of the sink") | of_sink == SINK_OPTIONS.keys()


def test_each_is_the_same_or_better_or_different() -> None:
    for cells in [*rows("Options of the source"), *rows("Options of the sink")]:
        assert cells[1] in {"same", "better", "different", "refused"}, cells


def test_the_keys_that_are_named_are_known() -> None:
    keys = set(re.findall(r"`kafka\.([a-z.]+)`", PAGE.read_text(encoding="utf-8")))
    assert len(keys) > 15
    assert not keys - {*client_settings.every_key(), *SECURITY_KEYS}
