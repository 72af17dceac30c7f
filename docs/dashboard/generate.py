"""Write `tidelog.json`, a dashboard for Grafana, from the table below: `python docs/dashboard/generate.py`.

A test holds the committed file to what this writes, and its expressions to what a node exports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
FILE = HERE / "tidelog.json"

WIDTH = 24
SCHEMA_VERSION = 39
"""Grafana 10.4 and newer read it as it is; Grafana migrates it where it is newer."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE_ONLY = 'job=~"$job",instance=~"$instance"'
"""What `@` in an expression stands for."""
GREEN, ORANGE, RED = "green", "orange", "red"


class Stat(NamedTuple):
    """One number, coloured by what it means.

    Attributes:
        steps: the colour from a value on; the first from the smallest on.
    """

    title: str
    expression: str
    steps: tuple[tuple[float | None, str], ...]
    about: str
    unit: str = "none"
    width: int = 3


class Graph(NamedTuple):
    """Lines over time, by the text of their legend."""

    title: str
    lines: tuple[tuple[str, str], ...]
    about: str
    unit: str = "short"
    width: int = 8
    is_stacked: bool = False


def none_is_right(expression: str, title: str, about: str, colour: str = RED) -> Stat:
    return Stat(title, expression, ((None, GREEN), (1, colour)), about)


def rate(counter: str, by: str, selector: str = "@") -> str:
    return f"sum by ({by}) (rate({counter}{{{selector}}}[$__rate_interval]))"


def quantile(share: float, histogram: str, by: str, selector: str = "@") -> str:
    return f"histogram_quantile({share}, {rate(histogram + '_bucket', f'{by}, le', selector)})"


OF_CONSUMERS = rate("tidelog_topic_fetched_bytes_total", "topic", '@,reader!="follower"')

ROWS: dict[str, tuple[Stat | Graph, ...]] = {
    "Is all well?": (
        Stat(
            "Nodes not ready",
            "count(tidelog_node_ready{@}) - sum(tidelog_node_ready{@})",
            ((None, GREEN), (1, RED)),
            "Nodes that answer the scrape and do not serve, or that no controller answers. Each node's /ready has the "
            "reason.",
        ),
        Stat(
            "Active controllers",
            "sum(tidelog_controller_active{@})",
            ((None, RED), (1, GREEN), (2, RED)),
            "One is right. None: nobody leads the metadata quorum. Two for longer than an election: one of them has "
            "not heard yet that it leads no more.",
        ),
        Stat(
            "Voters missing",
            "max(tidelog_quorum_voters{@}) - max(tidelog_quorum_voters_living{@})",
            ((None, GREEN), (1, ORANGE), (2, RED)),
            "Voters of the metadata quorum that do not fetch from its leader, or do not answer while nobody leads.",
        ),
        none_is_right(
            "max(tidelog_partitions_leaderless{@})",
            "Leaderless",
            "Partitions of the cluster that nobody leads: they are neither read nor written.",
        ),
        none_is_right(
            "sum(tidelog_partitions_offline{@})",
            "Offline replicas",
            "Replicas whose logs failed. The log of their node says 'goes offline', with the reason.",
        ),
        none_is_right(
            "sum(tidelog_partitions_under_min_isr{@}) + sum(tidelog_partitions_cut_off{@})",
            "Refusing acks=all",
            "Partitions with fewer replicas in sync, or heard of, than min.insync.replicas.",
        ),
        none_is_right(
            "sum(tidelog_partitions_under_replicated{@})",
            "Under-replicated",
            "Partitions with replicas that are not in sync: one more failure, and acks=all may be refused.",
            ORANGE,
        ),
        Stat(
            "Losses",
            "max(tidelog_losses_unacknowledged{@})",
            ((None, GREEN), (1, RED)),
            "Entries of the account of losses that no operator has acknowledged: tidelog losses list shows them.",
        ),
    ),
    "Produce and fetch": (
        Graph(
            "Produced",
            ((f"topk(10, {rate('tidelog_topic_produced_bytes_total', 'topic')})", "{{topic}}"),),
            "Bytes of batches that producers had appended, as they sent them.",
            "Bps",
        ),
        Graph(
            "Fetched by consumers",
            (
                (
                    f"topk(10, {OF_CONSUMERS})",
                    "{{topic}}",
                ),
            ),
            "Bytes of batches in answers to consumers, and to members of share groups.",
            "Bps",
        ),
        Graph(
            "Requests",
            ((f"topk(10, {rate('tidelog_requests_total', 'api')})", "{{api}}"),),
            "Requests that were handled completely.",
            "reqps",
        ),
        Graph(
            "Latency of Produce",
            (
                (quantile(0.5, "tidelog_request_duration_seconds", "job", '@,api="Produce",phase="total"'), "median"),
                (
                    quantile(0.99, "tidelog_request_duration_seconds", "instance", '@,api="Produce",phase="total"'),
                    "99 % {{instance}}",
                ),
            ),
            "From the arrival of the request to its answer; with acks=all that is once enough replicas have it.",
            "s",
        ),
        Graph(
            "Latency of Fetch, without waiting for records",
            (
                (quantile(0.5, "tidelog_request_duration_seconds", "job", '@,api="Fetch",phase="handle"'), "median"),
                (
                    quantile(0.99, "tidelog_request_duration_seconds", "instance", '@,api="Fetch",phase="handle"'),
                    "99 % {{instance}}",
                ),
            ),
            "Time in the handler.",
            "s",
        ),
        Graph(
            "Errors in answers",
            ((f"topk(10, {rate('tidelog_request_errors_total', 'api, error')} > 0)", "{{api}} {{error}}"),),
            "Error codes, one for each row of an answer. Some are part of the protocol, as MEMBER_ID_REQUIRED is.",
            "cps",
        ),
    ),
    "Replication": (
        Graph(
            "Fetched by followers",
            ((rate("tidelog_topic_fetched_bytes_total", "instance", '@,reader="follower"'), "{{instance}}"),),
            "Bytes of batches in answers to followers, by the node that leads.",
            "Bps",
        ),
        Graph(
            "Lag of the slowest follower",
            (("tidelog_replica_lag_records_max{@}", "{{instance}}"),),
            "Records that the slowest follower of a partition lacks, by the node that leads.",
        ),
        Graph(
            "Partitions with too few replicas",
            (
                ("sum(tidelog_partitions_under_replicated{@})", "under-replicated"),
                ("sum(tidelog_partitions_at_min_isr{@})", "at min.insync.replicas"),
                ("sum(tidelog_partitions_under_min_isr{@})", "below min.insync.replicas"),
                ("sum(tidelog_partitions_cut_off{@})", "cut off"),
            ),
            "By what the next failure means for them.",
        ),
        Graph(
            "Changes of the ISR",
            (
                (rate("tidelog_isr_shrinks_total", "job"), "shrinks"),
                (rate("tidelog_isr_expands_total", "job"), "expands"),
            ),
            "Replicas that left and joined those in sync. A steady rate of both: a node or its network is too slow.",
            "cps",
        ),
        Graph(
            "Still to be copied",
            (
                ("sum(tidelog_reassignment_bytes_left{@})", "reassignments"),
                ("sum(tidelog_log_move_bytes_left{@})", "moves between directories"),
            ),
            "About how much reassignments, and moves between the log directories of a node, have yet to copy.",
            "bytes",
        ),
        Graph(
            "Metadata",
            (
                ("max by (voter) (tidelog_quorum_voter_lag_records{@})", "voter {{voter}}"),
                ("tidelog_metadata_lag_records{@}", "applied at {{instance}}"),
            ),
            "Metadata records that a voter lacks, and that a node has and has not applied yet.",
        ),
    ),
    "Groups": (
        Graph(
            "Lag in seconds",
            (
                (
                    'topk(10, max by (group, topic) (tidelog_group_lag_seconds{@,group=~"$group"}))',
                    "{{group}} {{topic}}",
                ),
            ),
            "How old the oldest record is that the group has not read.",
            "s",
        ),
        Graph(
            "Lag in records",
            (
                (
                    'topk(10, sum by (group, topic) (tidelog_group_lag_records{@,group=~"$group"}))',
                    "{{group}} {{topic}}",
                ),
            ),
            "Records that the group has not read.",
        ),
        Graph(
            "Lags that are not shown, or not known",
            (
                ("sum(tidelog_group_lags_left_out{@})", "pairs beyond metrics.group.topics.max"),
                ("sum by (what) (tidelog_group_lag_unknown_partitions{@})", "partitions, {{what}} unknown"),
            ),
            "None of either is right.",
        ),
        Graph(
            "Groups",
            (
                ("sum by (state) (tidelog_groups{@})", "classic, {{state}}"),
                ("sum by (state) (tidelog_consumer_groups{@})", "consumer, {{state}}"),
                ("sum by (state) (tidelog_share_groups{@})", "share, {{state}}"),
            ),
            "By protocol and state.",
        ),
        Graph(
            "Coordinators that refuse",
            (
                ('sum by (instance) (tidelog_group_coordinators{@,state="refusing"})', "groups, {{instance}}"),
                (
                    'sum by (instance) (tidelog_transaction_coordinators{@,state="refusing"})',
                    "transactions, {{instance}}",
                ),
            ),
            "They load, which takes seconds, or their log is damaged.",
        ),
        Graph(
            "Transactions",
            (
                ('sum(tidelog_transactions{@,state="Ongoing"})', "open"),
                ("sum(tidelog_transaction_markers_waiting{@})", "markers that wait"),
                ("sum(tidelog_partitions_with_late_transactions{@})", "partitions with one that hangs"),
            ),
            "One that hangs stops read_committed consumers.",
        ),
    ),
    "Disks": (
        Graph(
            "Room",
            (
                (
                    "tidelog_log_directory_usable_bytes{@} / tidelog_log_directory_total_bytes{@}",
                    "{{instance}} {{directory}}",
                ),
            ),
            "The share of each file system that is free.",
            "percentunit",
        ),
        Graph(
            "Size of logs",
            (("topk(10, sum by (topic) (tidelog_topic_log_size_bytes{@}))", "{{topic}}"),),
            "Of all replicas together.",
            "bytes",
            is_stacked=True,
        ),
        Graph(
            "Duration of a sync",
            (
                (quantile(0.99, "tidelog_disk_sync_duration_seconds", "instance"), "99 % {{instance}}"),
                (
                    f"{rate('tidelog_disk_sync_duration_seconds_sum', 'instance')} / "
                    f"{rate('tidelog_disk_sync_duration_seconds_count', 'instance')}",
                    "mean {{instance}}",
                ),
            ),
            "How long the disk took to sync a file. Each change of metadata waits for one.",
            "s",
        ),
    ),
    "Process": (
        Graph(
            "Processor",
            (("rate(process_cpu_seconds_total{@}[$__rate_interval])", "{{instance}}"),),
            "Cores in use. A node serves on one core; its threads take some more.",
            "percentunit",
        ),
        Graph(
            "Delay of the event loop",
            ((quantile(0.99, "tidelog_event_loop_lag_seconds", "instance"), "99 % {{instance}}"),),
            "Every request waits about as long. Where it grows, the node's core is busy.",
            "s",
        ),
        Graph(
            "Memory",
            (
                ("process_resident_memory_bytes{@}", "{{instance}}"),
                ("sum by (instance) (tidelog_connection_memory_bytes{@})", "of it connections, {{instance}}"),
            ),
            "Resident memory of the process, and what requests and answers of connections take of it.",
            "bytes",
        ),
        Graph(
            "Connections",
            (("sum by (instance) (tidelog_connections_open{@})", "{{instance}}"),),
            "Open connections of clients and nodes.",
        ),
        Graph(
            "Connections that were closed or refused",
            (
                (rate("tidelog_connections_closed_total", "reason", '@,reason!="peer"'), "{{reason}}"),
                (rate("tidelog_connections_refused_total", "reason"), "refused: {{reason}}"),
            ),
            "By the node, with the reason.",
            "cps",
        ),
        Graph(
            "Files",
            (
                ("process_open_fds{@}", "open, {{instance}}"),
                ("process_max_fds{@} - tidelog_files_reserved{@}", "limit, {{instance}}"),
            ),
            "Open files and connections, and how many there may be.",
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    return {
        "uid": "tidelog",
        "title": "Tidelog",
        "description": "A Tidelog cluster. docs/monitoring.md says what to do about what is red.",
        "tags": ["tidelog"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "graphTooltip": 1,
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": variables()},
        "panels": panels(),
    }


def variables() -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "refresh": 1,
    }
    return [
        source,
        variable("job", "label_values(tidelog_build_info, job)"),
        variable("instance", 'label_values(tidelog_build_info{job=~"$job"}, instance)'),
        variable("group", 'label_values(tidelog_group_lag_records{job=~"$job"}, group)'),
    ]


def variable(name: str, query: str) -> dict[str, Any]:
    """One whose values Prometheus is asked for; all of them unless some are chosen."""
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }


def panels() -> list[dict[str, Any]]:
    """Row by row, each panel beside the one before it as long as there is room."""
    found: list[dict[str, Any]] = []
    y = 0
    for title, of_row in ROWS.items():
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            }
        )
        y += 1
        x = height = 0
        for one in of_row:
            if x + one.width > WIDTH:
                x, y = 0, y + height
            height = 4 if isinstance(one, Stat) else 8
            found.append(
                {
                    "id": len(found) + 1,
                    "title": one.title,
                    "description": one.about,
                    "datasource": DATASOURCE,
                    "gridPos": {"x": x, "y": y, "w": one.width, "h": height},
                    **(stat(one) if isinstance(one, Stat) else graph(one)),
                }
            )
            x += one.width
        y += height
    return found


def stat(one: Stat) -> dict[str, Any]:
    steps = [{"color": colour, "value": value} for value, colour in one.steps]
    return {
        "type": "stat",
        "targets": [target("A", one.expression, "", is_instant=True)],
        "fieldConfig": {
            "defaults": {"unit": one.unit, "decimals": 0, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {
            "colorMode": "background",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    }


def graph(one: Graph) -> dict[str, Any]:
    custom = {"fillOpacity": 10, "showPoints": "never", "stacking": {"mode": "normal" if one.is_stacked else "none"}}
    return {
        "type": "timeseries",
        "targets": [
            target(chr(ord("A") + index), expression, legend) for index, (expression, legend) in enumerate(one.lines)
        ],
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def target(ref_id: str, expression: str, legend: str, *, is_instant: bool = False) -> dict[str, Any]:
    return {
        "refId": ref_id,
        "datasource": DATASOURCE,
        "expr": expression.replace("@", HERE_ONLY),
        "legendFormat": legend,
        "instant": is_instant,
        "range": not is_instant,
    }


def page() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
