"""A member of a group by kafka-python: commits what it has read before it asks for more.

Its listener is called on the thread of its network, where a commit would wait for itself.
"""

from __future__ import annotations

import warnings
from typing import Any

from support.clients.kafka_python_client import TopicPartition, kafka
from support.load.group_members.told import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Voice, listen

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.consumer.subscription_state import ConsumerRebalanceListener
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def main() -> None:
    told, leaving = listen()
    voice = Voice()
    consumer: Any = KafkaConsumer(
        bootstrap_servers=told.bootstrap,
        group_id=told.group,
        group_instance_id=told.instance,
        partition_assignment_strategy=(ASSIGNORS[told.strategy],),
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        reconnect_backoff_max_ms=200,
    )
    positions: dict[int, int] = {}

    def commit() -> None:
        offsets = {
            TopicPartition(told.topic, one): kafka.structs.OffsetAndMetadata(position, "", -1)
            for one, position in positions.items()
        }
        try:
            if offsets:
                consumer.commit(offsets)
        except kafka.errors.KafkaError:
            pass  # what is not committed is read again

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                for one in revoked:
                    positions.pop(one.partition, None)
                voice.revoked()

        def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    consumer.subscribe([told.topic], listener=Listener())
    while not leaving.is_set():
        for place, records in consumer.poll(timeout_ms=50, max_records=1_000).items():
            voice.read(place.partition, [record.offset for record in records])
            positions[place.partition] = records[-1].offset + 1
        commit()
        voice.owns({one.partition for one in consumer.assignment()})
    commit()
    consumer.close()
    voice.closed()


if __name__ == "__main__":
    main()
