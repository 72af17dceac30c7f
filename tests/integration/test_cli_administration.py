"""Groups, settings and partitions from the command line, against a node."""

from __future__ import annotations

from confluent_kafka import Consumer

from support.fixtures.waiting import wait_until
from support.load.group_member import wait_for_coordinator
from support.load.share_member import ShareMember
from support.nodes.cli import rows, tidelog
from support.nodes.node import NodeProcess
from tidelog import Admin
from tidelog.base.errors import Code

TOPIC = "cli-admin"


def consumer(node: NodeProcess, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "client.id": "cli-reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def read(reader: Consumer, count: int) -> list[bytes]:
    """The values of the next records; fails if they do not come."""
    found: list[bytes] = []
    while len(found) < count:
        message = reader.poll(30)
        assert message is not None, f"only {len(found)} of {count} records came"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        found.append(value)
    return found


def test_a_group_is_watched_reset_and_deleted(shared_node: NodeProcess) -> None:
    group = "cli-group"
    tidelog(shared_node, "topics", "create", TOPIC, "--partitions", "2")
    tidelog(shared_node, "produce", TOPIC, "--partition", "0", stdin="a\nb\nc\nd\n")
    reader = consumer(shared_node, group)
    reader.subscribe([TOPIC])
    assert read(reader, 4) == [b"a", b"b", b"c", b"d"]
    reader.commit(asynchronous=False)

    listed = rows(tidelog(shared_node, "groups", "list", "-o", "json"))
    assert {"group": group, "state": "Stable", "type": "classic", "protocol_type": "consumer"} in listed
    described = rows(tidelog(shared_node, "groups", "describe", group, "-o", "json"))
    assert [
        (
            row["topic"],
            row["partition"],
            row["committed"],
            row["leader_epoch"],
            row["log_end"],
            row["lag"],
            row["client"],
        )
        for row in described
        if row["committed"] is not None
    ] == [(TOPIC, 0, 4, 0, 4, 0, "cli-reader")]
    [member] = rows(tidelog(shared_node, "groups", "describe", group, "--members", "-o", "json"))
    assert (member["client"], member["partitions"]) == ("cli-reader", [f"{TOPIC}-0", f"{TOPIC}-1"])

    to_start = ("groups", "reset-offsets", group, "--topic", f"{TOPIC}:0", "--to-earliest")
    assert "stop its consumers first" in tidelog(shared_node, *to_start, "--execute", status=1)
    assert "members" in tidelog(shared_node, "groups", "delete", group, status=1)
    reader.close()

    planned = {"topic": TOPIC, "partition": 0, "from": 4, "to": 0, "leader_epoch": 0, "done": False}
    assert rows(tidelog(shared_node, *to_start, "-o", "json")) == [planned]
    assert rows(tidelog(shared_node, "groups", "describe", group, "-o", "json"))[0]["committed"] == 4
    back = ("groups", "reset-offsets", group, "--all-topics", "--shift-by", "-1", "--execute")
    [moved] = rows(tidelog(shared_node, *back, "-o", "json"))
    assert (moved["from"], moved["to"], moved["done"]) == (4, 3, True)
    reader = consumer(shared_node, group)
    reader.subscribe([TOPIC])
    assert read(reader, 1) == [b"d"]
    reader.close()

    assert rows(tidelog(shared_node, "groups", "delete", group, "-o", "json")) == [{"deleted": group}]
    assert group not in {row["group"] for row in rows(tidelog(shared_node, "groups", "list", "-o", "json"))}
    assert group in tidelog(shared_node, "groups", "delete", group, status=1)
    assert tidelog(shared_node, "groups", "delete", group, "--if-exists") == "none was there\n"
    assert f"there is no group '{group}'" in tidelog(shared_node, "groups", "describe", group, status=1)


def test_where_to_reset_to_is_said_once_and_within_the_log(shared_node: NodeProcess) -> None:
    topic, group = "cli-reset", "cli-reset"
    tidelog(shared_node, "topics", "create", topic)
    tidelog(shared_node, "produce", topic, stdin="a\nb\nc\n")
    reset = ("groups", "reset-offsets", group)
    for arguments in ([], ["--to-latest"], ["--topic", topic], ["--to-latest", "--to-earliest", "--topic", topic],
                      ["--to-latest", "--topic", topic, "--all-topics"], ["--to-latest", "--topic", f"{topic}:7"],
                      ["--to-time", "yesterday", "--topic", topic], ["--shift-by", "1", "--topic", topic]):  # fmt: skip
        assert tidelog(shared_node, *reset, *arguments, status=2).count("error: ") == 1, arguments
    for arguments, offset in (
        (["--to-offset", "2"], 2),
        (["--to-offset", "99"], 3),
        (["--to-latest"], 3),
        (["--to-time", "2001-01-01"], 0),
        (["--to-time", "2999-01-01T00:00Z"], 3),
    ):
        [row] = rows(tidelog(shared_node, *reset, "--topic", topic, *arguments, "-o", "json"))
        assert (row["from"], row["to"]) == (None, offset), arguments
    assert tidelog(shared_node, *reset, "--all-topics", "--to-latest") == "the group committed nothing\n"


def test_settings_are_changed_and_taken_back(shared_node: NodeProcess) -> None:
    topic = "cli-configs"
    tidelog(shared_node, "topics", "create", topic, "--config", "segment.bytes=1048576")
    said = rows(
        tidelog(
            shared_node,
            *("configs", "alter", "topic", topic, "--config", "retention.ms=5000", "--delete", "segment.bytes"),
            *("-o", "json"),
        )
    )
    assert said == [
        {"key": "retention.ms", "value": "5000", "source": "dynamic topic"},
        {"key": "segment.bytes", "value": "1073741824", "source": "default"},
    ]
    only_set = rows(tidelog(shared_node, "configs", "describe", "topic", topic, "--set", "--doc", "-o", "json"))
    assert [(row["key"], row["value"]) for row in only_set] == [("retention.ms", "5000")]
    assert only_set[0]["doc"]
    assert "retention.ms" in tidelog(
        shared_node, "configs", "alter", "topic", topic, "--config", "retention.mz=1", status=1
    )
    assert tidelog(shared_node, "configs", "alter", "topic", topic, status=2).startswith("Usage") is False
    brokers = rows(tidelog(shared_node, "configs", "describe", "broker", "1", "-o", "json"))
    assert {"key": "node.id", "value": "1", "source": "static broker", "read_only": True} in brokers
    assert "node.id" in tidelog(shared_node, "configs", "alter", "broker", "1", "--config", "node.id=2", status=1)


def test_a_topic_gets_partitions_and_settings_or_nothing(shared_node: NodeProcess) -> None:
    topic = "cli-alter"
    tidelog(shared_node, "topics", "create", topic)
    alter = ("topics", "alter", topic)
    assert "retention.ms" in tidelog(shared_node, *alter, "--partitions", "2", "--config", "retention.mz=1", status=1)
    [row] = rows(tidelog(shared_node, *alter, "--partitions", "3", "--config", "retention.ms=1000", "-o", "json"))
    assert row["partitions"] == 3
    assert "retention.ms" in tidelog(shared_node, "configs", "describe", "topic", topic, "--set")
    assert "partitions" in tidelog(shared_node, *alter, "--partitions", "2", status=1)
    assert "cli-nowhere" in tidelog(shared_node, "topics", "alter", "cli-nowhere", "--partitions", "2", status=1)
    tidelog(shared_node, *alter, status=2)


def test_a_share_group_is_watched_reset_and_deleted(shared_node: NodeProcess) -> None:
    topic = group = "cli-share-group"
    tidelog(shared_node, "topics", "create", topic, "--partitions", "1")
    tidelog(shared_node, "produce", topic, stdin="a\nb\nc\nd\n")
    member = ShareMember(shared_node.port, group)
    wait_for_coordinator(member.client, group)
    assert member.join(topic) is Code.NONE
    wait_until(lambda: member.beat() is Code.NONE and member.partition_count == 1, "it reads the partition")
    listed = rows(tidelog(shared_node, "groups", "list", "-o", "json"))
    assert {"group": group, "state": "Stable", "type": "share", "protocol_type": "share"} in listed
    [reader] = rows(tidelog(shared_node, "groups", "describe", group, "--members", "-o", "json"))
    assert (reader["protocol"], reader["partitions"]) == ("simple", [f"{topic}-0"])
    member.leave()
    member.close()

    reset = ("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "1", "-o", "json")
    [planned] = rows(tidelog(shared_node, *reset))
    assert (planned["from"], planned["to"], planned["done"]) == (None, 1, False)
    tidelog(shared_node, *reset, "--execute")
    [described] = rows(tidelog(shared_node, "groups", "describe", group, "-o", "json"))
    assert (described["committed"], described["log_end"], described["lag"]) == (1, 4, 3)
    assert rows(tidelog(shared_node, "groups", "describe", "-o", "json")), "all groups, of any kind"
    with Admin(shared_node.bootstrap) as admin:
        admin.delete_share_group_offsets(group, [topic])
        assert admin.list_share_group_offsets(group) == {}
    tidelog(shared_node, "groups", "delete", group)
    assert group not in [row["group"] for row in rows(tidelog(shared_node, "groups", "list", "-o", "json"))]
