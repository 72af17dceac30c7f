"""How long what clients did counts for their quotas."""

from __future__ import annotations

from typing import Any

from tidelog.metadata.configs.key import INT, ConfigKey, keys_in

QUOTA_WINDOW_NUM = ConfigKey(
    "quota.window.num",
    INT,
    "11",
    "In how many windows of quota.window.size.seconds bytes, requests and connections of clients are counted.",
    minimum=1,
)
QUOTA_WINDOW_SIZE_SECONDS = ConfigKey(
    "quota.window.size.seconds", INT, "1", "How long a window of quota.window.num is, in seconds.", minimum=1
)
CONTROLLER_QUOTA_WINDOW_NUM = ConfigKey(
    "controller.quota.window.num",
    INT,
    "11",
    "For how many windows of controller.quota.window.size.seconds partitions that a client does not make or delete are "
    "saved up.",
    minimum=1,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = ConfigKey(
    "controller.quota.window.size.seconds",
    INT,
    "1",
    "How long a window of controller.quota.window.num is, in seconds.",
    minimum=1,
)

QUOTA_CONFIGS: tuple[ConfigKey[Any], ...] = keys_in(globals())
