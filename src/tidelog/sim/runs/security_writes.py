"""How an operator writes registers: one request makes, changes or removes one rule, user, quota, token, or setting."""

from __future__ import annotations

from tidelog.metadata import ResourceType
from tidelog.metadata.acls import AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.security.scram import salted_password
from tidelog.sim.runs.security_plan import READER, SCRAM
from tidelog.sim.runs.security_reads import GROUP, GROUP_SETTING, QUOTA, QUOTA_KEY, RULE, TOPIC, SecurityRegister
from tidelog.sim.world.rng import SeededRng
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.api_30_create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.api_31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.api_37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    OPERATION_DELETE,
    OPERATION_SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.api_49_alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    QuotaEntityData,
    QuotaEntryData,
)
from tidelog.wire.messages.api_51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

TIMEOUT_MS = 6_000
SCRAM_NUMBER = 1
ITERATIONS_MIN = 4_096
GROUP_VALUE_MIN = 45_000
QUOTA_MIN = 1e9
PARTITIONS_MAX = 3
ALLOW, DENY = "allow", "deny"
PERMISSIONS = {ALLOW: AclPermission.ALLOW, DENY: AclPermission.DENY}


def next_value(register: SecurityRegister, value: object, number: int, rng: SeededRng) -> object:
    """What is to be written over a value: None to remove what is there.

    Args:
        number: that no value had before.
    """
    if register.kind == RULE:
        if value is None:
            return (ALLOW,)
        return (ALLOW, DENY) if value == (ALLOW,) and rng.random() < 0.4 else (ALLOW,) if value != (ALLOW,) else None
    if value is not None and rng.random() < 0.5:
        return None
    if register.kind == TOPIC:
        assert value is None or isinstance(value, int)
        return 1 if value is None else value + 1 if value < PARTITIONS_MAX else None
    if register.kind == QUOTA:
        return QUOTA_MIN + number
    if register.kind == GROUP:
        return str(GROUP_VALUE_MIN + number % 10_000)
    return ITERATIONS_MIN + number % 10_000


def password(name: str, iterations: object) -> str:
    """Of a user whose password has so many iterations."""
    return f"{name} {iterations}"


def name_of(kind: str, number: int) -> str:
    """Of a new register. That of an access rule says what it is about."""
    return f"{'topic' if number % 2 else 'group'}-{number}" if kind == RULE else f"{kind}-{number}"


def resource_type_of(rule: str) -> AclResourceType:
    """What an access rule of that name is about."""
    return AclResourceType.TOPIC if rule.startswith("topic") else AclResourceType.GROUP


def write_request(register: SecurityRegister, before: object, value: object, replication_factor: int) -> object:
    """The request that has it done."""
    kind, name = register
    if kind == TOPIC:
        return _topic(name, before, value, replication_factor)
    if kind == RULE:
        return _rule(name, before, value)
    if kind == QUOTA:
        op = OpData(QUOTA_KEY, remove=True) if value is None else OpData(QUOTA_KEY, _float(value))
        return AlterClientQuotasRequest(entries=[QuotaEntryData([QuotaEntityData("user", name)], [op])])
    if kind == GROUP:
        text = None if value is None else str(value)
        config = AlterableConfig(GROUP_SETTING, OPERATION_DELETE if text is None else OPERATION_SET, text)
        return IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(ResourceType.GROUP, name, [config])])
    if value is None:
        return AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name, SCRAM_NUMBER)])
    assert isinstance(value, int)
    salt = name.encode()
    salted = salted_password(SCRAM, password(name, value), salt, value)
    return AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion(name, SCRAM_NUMBER, value, salt, salted)]
    )


def _topic(name: str, before: object, value: object, replication_factor: int) -> object:
    if value is None:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
    assert isinstance(value, int)
    if before is None:
        topic = CreatableTopic(name=name, num_partitions=value, replication_factor=replication_factor)
        return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, value)], timeout_ms=TIMEOUT_MS)


def _rule(name: str, before: object, value: object) -> object:
    """Whoever is allowed may do everything with what has that name."""
    had, has = (set(one) if isinstance(one, tuple) else set() for one in (before, value))
    (changed,) = had ^ has
    what, literal = int(resource_type_of(name)), int(PatternType.LITERAL)
    reader, everything, permission = f"User:{READER}", int(AclOperation.ALL), int(PERMISSIONS[changed])
    if changed in has:
        return CreateAclsRequest(creations=[AclCreation(what, name, literal, reader, "*", everything, permission)])
    one = DeleteAclsFilter(what, name, literal, reader, "*", everything, permission)
    return DeleteAclsRequest(filters=[one])


def _float(value: object) -> float:
    assert isinstance(value, float)
    return value
