"""What one request may hold, whoever sends it: so that no request takes the event loop for long, nor much memory.

A frame of 100 MB is refused by its first ten bytes where its API has no use for it. What is read is counted as it is
read: two bytes of a request may stand for an object of eighty, and each takes its time.
"""

from __future__ import annotations

from tidelog.wire.api import APIS, ApiKey

FEW_BYTES_MAX = 256 << 10
"""Of a request that lists nothing, or what there is little of: nodes, directories, features."""

LISTED_BYTES_MAX = 8 << 20
"""Of a request that lists topics, partitions, groups or keys. A fetch of 100,000 partitions takes about half of it."""

ENVELOPE_BYTES_MAX = LISTED_BYTES_MAX + FEW_BYTES_MAX
"""Of a request that holds another one, and what there is to say about it."""

ELEMENTS_MAX = 1 << 18
"""Values in the arrays of one request, its tagged fields, and each 512 bytes of a string: six bytes of it may become a
kilobyte of objects here and in the answer. A fetch of 100,000 partitions takes less than half of it."""

_OF_LITTLE = frozenset(
    {
        ApiKey.HEARTBEAT,
        ApiKey.LIST_GROUPS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.DESCRIBE_ACLS,
    }
)


def lists_little(api_key: int) -> bool:
    """Whether requests of an API list nothing, or little."""
    return api_key in _OF_LITTLE or api_key not in APIS


def request_size_bytes_max(api_key: int) -> int | None:
    """The largest request of an API, without its size; None for Produce: `socket.request.max.bytes` is its limit."""
    if api_key == ApiKey.PRODUCE:
        return None
    if api_key == ApiKey.ENVELOPE:
        return ENVELOPE_BYTES_MAX
    return FEW_BYTES_MAX if lists_little(api_key) else LISTED_BYTES_MAX
