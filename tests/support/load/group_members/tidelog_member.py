"""A member of a group by Tidelog's own consumer: commits as it goes, and all it has read when partitions are taken."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from support.load.group_members.told import CLASSIC, HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Voice, listen
from tidelog import CommitFailedError, Consumer, KafkaError, LogTruncatedError, TimedOutError, TopicPartition


def main() -> None:
    told, leaving = listen()
    voice = Voice()
    options: dict[str, Any] = {"group_protocol": told.protocol}
    if told.protocol == CLASSIC:
        options["partition_assignment_strategy"] = [told.strategy]
        options |= {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS}
    else:
        options["group_remote_assignor"] = told.strategy
    with Consumer(
        told.bootstrap,
        group_id=told.group,
        group_instance_id=told.instance,
        auto_offset_reset="none",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        **options,
    ) as consumer:

        def on_revoked(_: list[TopicPartition]) -> None:
            with suppress(CommitFailedError, KafkaError, TimedOutError):  # what is not committed is read again
                consumer.commit()
            voice.revoked()

        consumer.subscribe([told.topic], start="earliest", on_revoked=on_revoked)
        while not leaving.is_set():
            try:
                records = consumer.poll(50, max_records=1_000)
            except LogTruncatedError as lost:
                if lost.partition is None:
                    raise
                consumer.seek(lost.partition, lost.seek_to)
                continue
            offsets: dict[int, list[int]] = {}
            for record in records:
                offsets.setdefault(record.partition, []).append(record.offset)
            for partition, found in offsets.items():
                voice.read(partition, found)
            if offsets:
                consumer.commit(wait=False)
            voice.owns({int(one.partition) for one in consumer.assignment()})
        consumer.commit()
    voice.closed()


if __name__ == "__main__":
    main()
