"""The other way round: transactions of our producers at Apache Kafka, in both protocols."""

from __future__ import annotations

import asyncio

import pytest

from support.clients.kafka_peer import KafkaPeer
from support.load.own_transactions import (
    aborted_is_not_read,
    another_takes_over,
    offsets_and_output_together,
    open_for_too_long,
    prepared_and_resumed,
    refused_and_gone_on,
)
from tidelog import Admin, NewTopic
from tidelog.client.admin.cluster_descriptions import FeatureUpdate, UpgradeType


@pytest.mark.parametrize("level", [1, 2])
def test_they_end_as_they_do_at_a_node_of_ours(kafka_peer: KafkaPeer, topic: str, level: int) -> None:
    bootstrap = kafka_peer.bootstrap
    with Admin(bootstrap) as admin:
        now = admin.describe_features()["transaction.version"].level or 0
        kind: UpgradeType = "upgrade" if level > now else "safe downgrade"
        if level != now:
            admin.update_features({"transaction.version": FeatureUpdate(level, kind)})
        names = [f"{topic}-{number}" for number in range(6)]
        admin.create_topics([NewTopic(name, 2, 1) for name in names])
    aborted_is_not_read(bootstrap, names[0])
    offsets_and_output_together(bootstrap, names[1])
    another_takes_over(bootstrap, names[2])
    refused_and_gone_on(bootstrap, names[4])
    open_for_too_long(bootstrap, names[5])
    asyncio.run(prepared_and_resumed(bootstrap, names[3]))
