"""What a topic may be called."""

from __future__ import annotations

from tidelog.base.ids import CLUSTER_METADATA_TOPIC

TOPIC_NAME_LENGTH_MAX = 249
"""Characters. A partition's directory is named after its topic, and names of files end at 255 bytes."""

LEGAL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset((CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC))
"""Topics that hold what the coordinators know."""

RESERVED_TOPICS = frozenset((CLUSTER_METADATA_TOPIC,))
"""Names that no topic may have."""


def check_topic_name(name: str) -> str | None:
    """What is wrong with a name; None if nothing is. Whether it is taken, or reserved, is not asked here."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name {name!r} means a directory"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the topic name has {len(name)} characters; at most {TOPIC_NAME_LENGTH_MAX} are allowed"
    illegal = sorted(set(name) - LEGAL_CHARACTERS)
    if illegal:
        return f"the topic name {name!r} holds {''.join(illegal)!r}; letters, digits, '.', '_' and '-' are allowed"
    return None


def collision_key(name: str) -> str:
    """Equal for names that differ in '.' and '_' alone: as names of metrics they would be the same."""
    return name.replace(".", "_")
