"""The ten reads of KIP-1243, and what the answer of each says of the registers that an operator writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from tidelog.base.errors import Code
from tidelog.metadata import ResourceType
from tidelog.metadata.acls import AclPermission
from tidelog.metadata.configs.table import ConfigSource
from tidelog.sim.checkers.registers import Register, Sight
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_29_describe_acls import DescribeAclsRequest
from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.api_35_describe_log_dirs import DescribeLogDirsRequest
from tidelog.wire.messages.api_41_describe_delegation_token import DescribeDelegationTokenRequest
from tidelog.wire.messages.api_48_describe_client_quotas import DescribeClientQuotasRequest
from tidelog.wire.messages.api_50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tidelog.wire.messages.api_60_describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.api_74_list_config_resources import ListConfigResourcesRequest
from tidelog.wire.messages.api_75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest

TOPIC, RULE, USER, QUOTA, TOKEN, GROUP = "topic", "access rule", "user", "quota", "delegation token", "group"
KINDS = (TOPIC, RULE, USER, QUOTA, TOKEN, GROUP)
GROUP_SETTING = "consumer.session.timeout.ms"
QUOTA_KEY = "producer_byte_rate"
READS_OF_CONTROLLERS = frozenset(("DescribeAcls", "DescribeConfigs", "DescribeUserScramCredentials"))
ANY = 1
"""Of types, operations and permissions in a filter."""
NAMED_MAX = 20
"""Of topics, or groups: those that were made last."""

Names = Mapping[str, list[str]]
"""What was ever made, by kind, the first one first."""
Sights = dict[Register, Sight]


class SecurityRegister(NamedTuple):
    """What is written: the partitions of a topic, the permissions of a rule, the iterations of a password …"""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class GatedRead(NamedTuple):
    """One of the ten.

    Attributes:
        kinds: of registers of which it says something.
        sights: what an answer says.
    """

    request: object
    kinds: tuple[str, ...]
    sights: Callable[[Any], Sights]


def codes_of(answer: object) -> list[Code]:
    """All errors in an answer, of the whole and of its rows."""
    found = []
    for name in getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if name.startswith("error_code") and value:
            found.append(Code(value))
        for row in value if isinstance(value, list) else ():
            found += codes_of(row)
    return found


def gated_reads(names: Names) -> dict[str, GatedRead]:
    """Those that can be asked, by name: where nothing was ever made, some name nothing."""
    topics, groups = names[TOPIC][-NAMED_MAX:], names[GROUP][-NAMED_MAX:]
    cluster_wide = {
        "DescribeLogDirs": GatedRead(DescribeLogDirsRequest(topics=None), (TOPIC,), partial(_hosted, names)),
        "DescribeDelegationToken": GatedRead(
            DescribeDelegationTokenRequest(owners=None), (TOKEN,), partial(_described_tokens, names)
        ),
        "DescribeClientQuotas": GatedRead(DescribeClientQuotasRequest(), (QUOTA,), partial(_described_quotas, names)),
        "DescribeUserScramCredentials": GatedRead(
            DescribeUserScramCredentialsRequest(users=None), (USER,), partial(_described_users, names)
        ),
        "DescribeCluster": GatedRead(DescribeClusterRequest(), (), _nothing),
        "ListConfigResources": GatedRead(
            ListConfigResourcesRequest(resource_types=[ResourceType.TOPIC, ResourceType.GROUP]),
            (TOPIC, GROUP),
            partial(_listed, names),
        ),
    }
    if names[RULE]:
        everything = DescribeAclsRequest(
            resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY
        )
        cluster_wide["DescribeAcls"] = GatedRead(everything, (RULE,), partial(_described_rules, names))
    if topics:
        rows = [MetadataRequestTopic(name=one) for one in topics]
        metadata = MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        partitions = DescribeTopicPartitionsRequest(topics=[TopicRequest(one) for one in topics])
        cluster_wide["Metadata"] = GatedRead(metadata, (TOPIC,), _described_topics)
        cluster_wide["DescribeTopicPartitions"] = GatedRead(partitions, (TOPIC,), _described_topics)
    if groups:
        resources = [DescribeConfigsResource(ResourceType.GROUP, one, [GROUP_SETTING]) for one in groups]
        configs = DescribeConfigsRequest(resources=resources)
        cluster_wide["DescribeConfigs"] = GatedRead(configs, (GROUP,), _described_groups)
    return cluster_wide


def _nothing(answer: Any) -> Sights:
    return {}


def _described_topics(answer: Any) -> Sights:
    return {
        SecurityRegister(TOPIC, row.name): Sight.of(len(row.partitions) or None)
        for row in answer.topics
        if row.error_code in (Code.NONE, Code.LEADER_NOT_AVAILABLE, Code.UNKNOWN_TOPIC_OR_PARTITION)
    }


def _is_there(value: object) -> bool:
    return value is not None


def _is_not_there(value: object) -> bool:
    return value is None


def _hosted(names: Names, answer: Any) -> Sights:
    """A broker that has no replica of a topic says nothing of that; one that has says that there is the topic."""
    hosted = {topic.name for directory in answer.results for topic in directory.topics}
    made = [name for name in names[TOPIC] if name in hosted]
    return {SecurityRegister(TOPIC, name): Sight("that it is hosted", _is_there) for name in made}


def _listed(names: Names, answer: Any) -> Sights:
    listed = {(row.resource_type, row.resource_name) for row in answer.config_resources}
    found: Sights = {}
    for kind, number in ((TOPIC, ResourceType.TOPIC), (GROUP, ResourceType.GROUP)):
        for name in names[kind]:
            is_listed = (number, name) in listed
            told = "that it is listed" if is_listed else "that it is not listed"
            found[SecurityRegister(kind, name)] = Sight(told, _is_there if is_listed else _is_not_there)
    return found


def _described_rules(names: Names, answer: Any) -> Sights:
    found: dict[str, list[str]] = defaultdict(list)
    for resource in answer.resources:
        for one in resource.acls:
            found[resource.resource_name].append(AclPermission(one.permission_type).name.lower())
    return _of_all(RULE, names, {name: tuple(sorted(permissions)) for name, permissions in found.items()})


def _described_tokens(names: Names, answer: Any) -> Sights:
    return _of_all(TOKEN, names, {row.token_id: bytes(row.hmac) for row in answer.tokens})


def _described_quotas(names: Names, answer: Any) -> Sights:
    rows = answer.entries or ()
    return _of_all(QUOTA, names, {row.entity[0].entity_name: row.values[0].value for row in rows})


def _described_users(names: Names, answer: Any) -> Sights:
    return _of_all(USER, names, {row.user: row.credential_infos[0].iterations for row in answer.results})


def _described_groups(answer: Any) -> Sights:
    """What is not set is told by its default."""
    found: Sights = {}
    for row in answer.results:
        if not row.error_code:
            values = [one.value for one in row.configs if one.config_source == ConfigSource.DYNAMIC_GROUP]
            found[SecurityRegister(GROUP, row.resource_name)] = Sight.of(values[0] if values else None)
    return found


def _of_all(kind: str, names: Names, found: Mapping[str, object]) -> Sights:
    """What is not described is not there."""
    return {SecurityRegister(kind, name): Sight.of(found.get(name)) for name in names[kind]}
