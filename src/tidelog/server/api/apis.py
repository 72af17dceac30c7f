"""Every API that is served, in one table: by which handler, to whom, and what it waits for.

A new API is a message in `wire/messages`, a handler in `handlers/` and a row here. Kafka: `ApiKeys`, `KafkaApis`,
`ControllerApis`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.metadata.features import SHARE_VERSION, SUPPORTED_FEATURES
from tidelog.server.api.division import (
    PRODUCED_MAX,
    RECORDS_MAX,
    WRITES_MAX,
    Division,
    added_partitions,
    ordered_partitions,
    ordered_quotas,
    ordered_topic,
    orders,
    written_batches,
)
from tidelog.server.api.gated_apis import (
    AreDenied,
    Refuse,
    added,
    at_top,
    decided,
    fetched,
    in_configs,
    in_log_dirs,
    in_metadata,
    in_topic_partitions,
    logs_in,
    moved,
    names_unknown,
    of_topics,
)
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER, INTER_BROKER
from tidelog.wire.api import OWN_SINCE, ApiKey, api


class ServedApi(NamedTuple):
    """How one API is served.

    Attributes:
        module: of its handler, in `handlers/`, which loads on first use.
        roles: of the listeners that serve it.
        module_of_controllers: of the handler at a listener of controllers, if that is another one: a Fetch there reads
            the metadata log.
        is_forwarded: only the active controller decides it; a broker asks it in the client's place (KIP-590).
        is_forwarded_in_part: what the active controller decides of it, its handler asks for. Of changed settings those
            of a broker's loggers are its own: see `alter_configs.py`.
        refuse: it answers from the metadata as such, so it waits for the metadata that its token speaks of, whatever
            it asks for (the reads of KIP-1243): this says in its answer that the metadata did not come.
        are_denied: it does something else, and waits only where it would be refused for what this broker does not
            know. It is looked at before it is begun: what was half done cannot be begun again.
        division: how a request that lists much is answered in pieces; None where it cannot list much.
        feature: without which it is served to nobody: one that this release must know above level 0. The handler asks
            whether it is on.
    """

    module: str
    roles: tuple[str, ...]
    module_of_controllers: str | None = None
    is_forwarded: bool = False
    is_forwarded_in_part: bool = False
    refuse: Refuse | None = None
    are_denied: AreDenied | None = None
    division: Division | None = None
    feature: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether this release serves what it is part of."""
        return self.feature is None or SUPPORTED_FEATURES[self.feature][1] > 0

    @property
    def is_forwardable(self) -> bool:
        """Whether controllers take it in an envelope."""
        return self.is_forwarded or self.is_forwarded_in_part

    def module_at(self, listener_role: str) -> str:
        """Of the handler at a listener of a role."""
        return self.module_of_controllers or self.module if listener_role == CONTROLLER else self.module


PRODUCED = Division("partition_data", "partition_responses")
PARTITIONS = Division("partitions", "partitions")
SHARE_STATES = Division("topics", "results", PARTITIONS, weight_max=WRITES_MAX, waits_for_all=True)
INDEXES_BY_TOPIC = Division("topics", "topics", Division("partition_indexes", "partitions"))

APIS: dict[int, ServedApi] = {
    ApiKey.PRODUCE: ServedApi(
        "api_00_produce",
        (BROKER,),
        are_denied=of_topics("topic_data", partitions="partition_data", index="index"),
        division=Division("topic_data", "responses", PRODUCED, weight_max=PRODUCED_MAX, waits_for_all=True),
    ),
    ApiKey.FETCH: ServedApi(
        "api_01_fetch", (BROKER, CONTROLLER), module_of_controllers="api_01_fetch_metadata", are_denied=fetched
    ),
    ApiKey.LIST_OFFSETS: ServedApi(
        "api_02_list_offsets",
        (BROKER,),
        are_denied=of_topics("topics", index="partition_index"),
        division=Division("topics", "topics", PARTITIONS),
    ),
    ApiKey.METADATA: ServedApi("api_03_metadata", (BROKER,), refuse=in_metadata, division=Division("topics", "topics")),
    ApiKey.STOP_REPLICA: ServedApi("api_05_stop_replica", (INTER_BROKER,)),
    ApiKey.OFFSET_COMMIT: ServedApi(
        "api_08_offset_commit",
        (BROKER,),
        are_denied=of_topics("topics", index="partition_index"),
        division=Division("topics", "topics", PARTITIONS),
    ),
    ApiKey.OFFSET_FETCH: ServedApi(
        "api_09_offset_fetch",
        (BROKER,),
        division=Division("groups", "groups", INDEXES_BY_TOPIC, weight_max=WRITES_MAX, earlier=INDEXES_BY_TOPIC),
    ),
    ApiKey.FIND_COORDINATOR: ServedApi(
        "api_10_find_coordinator", (BROKER,), division=Division("coordinator_keys", "coordinators")
    ),
    ApiKey.JOIN_GROUP: ServedApi("api_11_join_group", (BROKER,)),
    ApiKey.HEARTBEAT: ServedApi("api_12_heartbeat", (BROKER,)),
    ApiKey.LEAVE_GROUP: ServedApi(
        "api_13_leave_group", (BROKER,), division=Division("members", "members", weight_max=WRITES_MAX)
    ),
    ApiKey.SYNC_GROUP: ServedApi("api_14_sync_group", (BROKER,)),
    ApiKey.DESCRIBE_GROUPS: ServedApi(
        "api_15_describe_groups", (BROKER,), division=Division("groups", "groups", weight_max=WRITES_MAX)
    ),
    ApiKey.LIST_GROUPS: ServedApi("api_16_list_groups", (BROKER,)),
    ApiKey.SASL_HANDSHAKE: ServedApi("api_17_sasl_handshake", (BROKER, CONTROLLER)),
    ApiKey.API_VERSIONS: ServedApi("api_18_api_versions", (BROKER, CONTROLLER)),
    ApiKey.CREATE_TOPICS: ServedApi(
        "api_19_create_topics",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=orders("topics", "topics", orders=ordered_topic),
    ),
    ApiKey.DELETE_TOPICS: ServedApi(
        "api_20_delete_topics",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=orders("topics", "responses", earlier=orders("topic_names", "responses")),
    ),
    ApiKey.DELETE_RECORDS: ServedApi(
        "api_21_delete_records",
        (BROKER,),
        are_denied=of_topics("topics", index="partition_index"),
        division=Division("topics", "topics", PARTITIONS, weight_max=WRITES_MAX, waits_for_all=True),
    ),
    ApiKey.INIT_PRODUCER_ID: ServedApi("api_22_init_producer_id", (BROKER,)),
    ApiKey.ADD_PARTITIONS_TO_TXN: ServedApi(
        "api_24_add_partitions_to_txn",
        (BROKER,),
        are_denied=names_unknown(added),
        division=Division(
            "transactions",
            "results_by_transaction",
            weight_max=WRITES_MAX,
            orders=added_partitions,
            earlier=Division(
                "v3_and_below_topics",
                "results_by_topic_v3_and_below",
                Division("partitions", "results_by_partition"),
                is_whole=True,
            ),
        ),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: ServedApi("api_25_add_offsets_to_txn", (BROKER,)),
    ApiKey.END_TXN: ServedApi("api_26_end_txn", (BROKER,)),
    ApiKey.WRITE_TXN_MARKERS: ServedApi(
        "api_27_write_txn_markers",
        (BROKER,),
        division=Division("markers", "markers", INDEXES_BY_TOPIC, weight_max=WRITES_MAX, waits_for_all=True),
    ),
    ApiKey.DESCRIBE_PRODUCERS: ServedApi(
        "api_61_describe_producers",
        (BROKER,),
        are_denied=of_topics("topics", partitions="partition_indexes"),
        division=INDEXES_BY_TOPIC._replace(is_whole=True),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: ServedApi(
        "api_65_describe_transactions",
        (BROKER,),
        division=Division("transactional_ids", "transaction_states", weight_max=WRITES_MAX),
    ),
    ApiKey.LIST_TRANSACTIONS: ServedApi("api_66_list_transactions", (BROKER,)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ServedApi(
        "api_23_offset_for_leader_epoch",
        (BROKER,),
        are_denied=of_topics("topics", "topic", index="partition"),
        division=Division("topics", "topics", PARTITIONS),
    ),
    ApiKey.TXN_OFFSET_COMMIT: ServedApi(
        "api_28_txn_offset_commit",
        (BROKER,),
        are_denied=of_topics("topics", index="partition_index"),
        division=Division("topics", "topics", PARTITIONS),
    ),
    ApiKey.DESCRIBE_ACLS: ServedApi("api_29_describe_acls", (BROKER, CONTROLLER), refuse=at_top),
    ApiKey.CREATE_ACLS: ServedApi(
        "api_30_create_acls",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=Division("creations", "results", weight_max=RECORDS_MAX, is_whole=True),
    ),
    ApiKey.DELETE_ACLS: ServedApi(
        "api_31_delete_acls",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=Division("filters", "filter_results", weight_max=WRITES_MAX, is_whole=True),
    ),
    ApiKey.DESCRIBE_CONFIGS: ServedApi(
        "api_32_describe_configs",
        (BROKER, CONTROLLER),
        refuse=in_configs,
        division=Division("resources", "results", weight_max=16),
    ),
    ApiKey.ALTER_CONFIGS: ServedApi(
        "api_33_alter_configs",
        (BROKER, CONTROLLER),
        is_forwarded_in_part=True,
        are_denied=decided,
        division=orders("resources", "responses", orders=lambda one: 1 + len(one.configs)),
    ),
    ApiKey.SASL_AUTHENTICATE: ServedApi("api_36_sasl_authenticate", (BROKER, CONTROLLER), are_denied=logs_in),
    ApiKey.CREATE_PARTITIONS: ServedApi(
        "api_37_create_partitions",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=orders("topics", "results", orders=ordered_partitions),
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: ServedApi(
        "api_38_create_delegation_token", (BROKER, CONTROLLER), is_forwarded=True, are_denied=decided
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: ServedApi(
        "api_39_renew_delegation_token", (BROKER, CONTROLLER), is_forwarded=True, are_denied=decided
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ServedApi(
        "api_40_expire_delegation_token", (BROKER, CONTROLLER), is_forwarded=True, are_denied=decided
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ServedApi("api_41_describe_delegation_token", (BROKER,), refuse=at_top),
    ApiKey.ELECT_LEADERS: ServedApi(
        "api_43_elect_leaders",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=orders(
            "topic_partitions", "replica_election_results", inner=Division("partitions", "partition_result")
        ),
    ),
    ApiKey.DELETE_GROUPS: ServedApi(
        "api_42_delete_groups", (BROKER,), division=Division("groups_names", "results", weight_max=WRITES_MAX)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ServedApi(
        "api_44_incremental_alter_configs",
        (BROKER, CONTROLLER),
        is_forwarded_in_part=True,
        are_denied=decided,
        division=orders("resources", "responses", orders=lambda one: 1 + len(one.configs)),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ServedApi(
        "api_45_alter_partition_reassignments",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=orders("topics", "responses", inner=PARTITIONS),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ServedApi(
        "api_46_list_partition_reassignments",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=INDEXES_BY_TOPIC,
    ),
    ApiKey.OFFSET_DELETE: ServedApi(
        "api_47_offset_delete",
        (BROKER,),
        are_denied=of_topics("topics", index="partition_index"),
        division=Division("topics", "topics", PARTITIONS, weight_max=WRITES_MAX),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ServedApi(
        "api_34_alter_replica_log_dirs", (BROKER,), are_denied=names_unknown(moved)
    ),
    ApiKey.DESCRIBE_LOG_DIRS: ServedApi("api_35_describe_log_dirs", (BROKER,), refuse=in_log_dirs),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ServedApi(
        "api_48_describe_client_quotas",
        (BROKER,),
        refuse=at_top,
        division=Division("components", "entries", is_whole=True),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: ServedApi(
        "api_49_alter_client_quotas",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=orders("entries", "entries", orders=ordered_quotas, is_whole=True),
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ServedApi(
        "api_50_describe_user_scram_credentials",
        (BROKER, CONTROLLER),
        refuse=at_top,
        division=Division("users", "results", is_whole=True),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ServedApi(
        "api_51_alter_user_scram_credentials",
        (BROKER, CONTROLLER),
        is_forwarded=True,
        are_denied=decided,
        division=Division(
            "upsertions", "results", weight_max=RECORDS_MAX, is_order=True, is_whole=True, counted_with="deletions"
        ),
    ),
    ApiKey.VOTE: ServedApi("api_52_vote", (CONTROLLER,)),
    ApiKey.BEGIN_QUORUM_EPOCH: ServedApi("api_53_begin_quorum_epoch", (CONTROLLER,)),
    ApiKey.END_QUORUM_EPOCH: ServedApi("api_54_end_quorum_epoch", (CONTROLLER,)),
    ApiKey.DESCRIBE_QUORUM: ServedApi("api_55_describe_quorum", (BROKER, CONTROLLER), is_forwarded=True),
    ApiKey.ALTER_PARTITION: ServedApi(
        "api_56_alter_partition", (CONTROLLER,), division=orders("topics", "topics", inner=PARTITIONS)
    ),
    ApiKey.UPDATE_FEATURES: ServedApi(
        "api_57_update_features", (BROKER, CONTROLLER), is_forwarded=True, are_denied=decided
    ),
    ApiKey.ENVELOPE: ServedApi("api_58_envelope", (CONTROLLER,)),
    ApiKey.FETCH_SNAPSHOT: ServedApi("api_59_fetch_snapshot", (CONTROLLER,)),
    ApiKey.DESCRIBE_CLUSTER: ServedApi("api_60_describe_cluster", (BROKER, CONTROLLER), refuse=at_top),
    ApiKey.BROKER_REGISTRATION: ServedApi("api_62_broker_registration", (CONTROLLER,)),
    ApiKey.BROKER_HEARTBEAT: ServedApi("api_63_broker_heartbeat", (CONTROLLER,)),
    ApiKey.UNREGISTER_BROKER: ServedApi(
        "api_64_unregister_broker", (BROKER, CONTROLLER), is_forwarded=True, are_denied=decided
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: ServedApi("api_67_allocate_producer_ids", (CONTROLLER,)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ServedApi("api_68_consumer_group_heartbeat", (BROKER,)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ServedApi(
        "api_69_consumer_group_describe", (BROKER,), division=Division("group_ids", "groups", weight_max=WRITES_MAX)
    ),
    ApiKey.CONTROLLER_REGISTRATION: ServedApi("api_70_controller_registration", (CONTROLLER,)),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ServedApi("api_73_assign_replicas_to_dirs", (CONTROLLER,)),
    ApiKey.LIST_CONFIG_RESOURCES: ServedApi("api_74_list_config_resources", (BROKER,), refuse=at_top),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ServedApi(
        "api_75_describe_topic_partitions", (BROKER,), refuse=in_topic_partitions
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: ServedApi("api_76_share_group_heartbeat", (BROKER,), feature=SHARE_VERSION),
    ApiKey.SHARE_GROUP_DESCRIBE: ServedApi(
        "api_77_share_group_describe",
        (BROKER,),
        division=Division("group_ids", "groups", weight_max=WRITES_MAX),
        feature=SHARE_VERSION,
    ),
    ApiKey.SHARE_FETCH: ServedApi(
        "api_78_share_fetch",
        (BROKER,),
        are_denied=of_topics("topics", index="partition_index"),
        feature=SHARE_VERSION,
    ),
    ApiKey.SHARE_ACKNOWLEDGE: ServedApi(
        "api_79_share_acknowledge",
        (BROKER,),
        are_denied=of_topics("topics", index="partition_index"),
        feature=SHARE_VERSION,
    ),
    ApiKey.ADD_RAFT_VOTER: ServedApi(
        "api_80_add_raft_voter", (BROKER, CONTROLLER), is_forwarded=True, are_denied=decided
    ),
    ApiKey.REMOVE_RAFT_VOTER: ServedApi(
        "api_81_remove_raft_voter", (BROKER, CONTROLLER), is_forwarded=True, are_denied=decided
    ),
    ApiKey.UPDATE_RAFT_VOTER: ServedApi("api_82_update_raft_voter", (CONTROLLER,)),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ServedApi(
        "api_83_initialize_share_group_state", (BROKER,), division=SHARE_STATES, feature=SHARE_VERSION
    ),
    ApiKey.READ_SHARE_GROUP_STATE: ServedApi(
        "api_84_read_share_group_state", (BROKER,), division=SHARE_STATES, feature=SHARE_VERSION
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: ServedApi(
        "api_85_write_share_group_state",
        (BROKER,),
        division=Division(
            "topics",
            "results",
            Division("partitions", "partitions", orders=written_batches),
            weight_max=WRITES_MAX,
            waits_for_all=True,
        ),
        feature=SHARE_VERSION,
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: ServedApi(
        "api_86_delete_share_group_state", (BROKER,), division=SHARE_STATES, feature=SHARE_VERSION
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ServedApi(
        "api_87_read_share_group_state_summary", (BROKER,), division=SHARE_STATES, feature=SHARE_VERSION
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ServedApi(
        "api_90_describe_share_group_offsets",
        (BROKER,),
        division=Division("groups", "groups", Division("topics", "topics", PARTITIONS), waits_for_all=True),
        feature=SHARE_VERSION,
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ServedApi(
        "api_91_alter_share_group_offsets",
        (BROKER,),
        are_denied=of_topics("topics", "topic_name", index="partition_index"),
        feature=SHARE_VERSION,
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ServedApi(
        "api_92_delete_share_group_offsets",
        (BROKER,),
        are_denied=of_topics("topics", "topic_name", partitions=""),
        feature=SHARE_VERSION,
    ),
    ApiKey.DESCRIBE_LOSSES: ServedApi("api_10000_describe_losses", (BROKER,), refuse=at_top),
    ApiKey.ACKNOWLEDGE_LOSSES: ServedApi(
        "api_10001_acknowledge_losses", (BROKER, CONTROLLER), is_forwarded=True, are_denied=decided
    ),
    ApiKey.TELL_LOSSES: ServedApi("api_10002_tell_losses", (CONTROLLER,)),
    ApiKey.FETCH_LOST_RECORDS: ServedApi("api_10003_fetch_lost_records", (BROKER,), refuse=at_top),
    ApiKey.DESCRIBE_TOLD_READERS: ServedApi("api_10004_describe_told_readers", (BROKER,)),
    ApiKey.REPORT_RESUMPTIONS: ServedApi("api_10005_report_resumptions", (BROKER,)),
}

OPEN_TO_ALL = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
"""What anybody may ask before it is known who asks. `needs.py` says what all else needs."""

READS = {key: served.refuse for key, served in APIS.items() if served.refuse is not None}
DENIALS = {key: served.are_denied for key, served in APIS.items() if served.are_denied is not None}


def advertised(listener_role: str, *, with_own: bool = True) -> list[tuple[int, int, int]]:
    """(api key, lowest, highest version) of all that a listener of this role serves.

    Args:
        with_own: whether to name what Kafka has not. A client that is not ours may take it for damage.
    """
    rows = []
    for key, served in APIS.items():
        if key >= OWN_SINCE and not with_own:
            continue
        if served.is_known and is_served(served.roles, listener_role):
            known = api(key)
            lowest = 0 if key == ApiKey.PRODUCE else known.min_version
            rows.append((int(key), lowest, known.max_version))
    return rows


def is_served(roles: tuple[str, ...], listener_role: str) -> bool:
    """Whether an API of these roles is served at the listeners of a role: brokers have theirs as clients do."""
    return listener_role in roles or (listener_role == INTER_BROKER and BROKER in roles)
