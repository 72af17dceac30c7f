"""What peers of one address may do at a node before it refuses: each a budget that comes back by itself.

Kafka: none.
"""

from __future__ import annotations

import logging

from tidelog.base.ports import Clock
from tidelog.base.principals import Requester
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs.limits import MAX_AUTO_CREATED_TOPICS_PER_IP, MAX_FAILED_AUTHENTICATIONS_PER_IP
from tidelog.server.quotas.budgets import Budgets, network_of
from tidelog.server.quotas.failed_logins import FailedLogins
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.settings.log_lines import Seldom

logger = logging.getLogger("tidelog.server.limits")

TOPICS_PERIOD_MS = 3_600_000
LOG_INTERVAL_SECONDS = 10.0


class PeerLimits:
    """Those of one node.

    Attributes:
        failed_logins: of those who show no right password.
        auto_created_topics: by user and address, of topics that are made because they were asked for.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self.failed_logins = FailedLogins(settings[MAX_FAILED_AUTHENTICATIONS_PER_IP], clock.now_ms)
        self.auto_created_topics: Budgets[tuple[str, str]] = Budgets(
            settings[MAX_AUTO_CREATED_TOPICS_PER_IP], TOPICS_PERIOD_MS, clock.now_ms
        )
        self._topics_log = Seldom(LOG_INTERVAL_SECONDS)

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """Other limits may be in force."""
        self.failed_logins.budgets.count_max = new.broker[MAX_FAILED_AUTHENTICATIONS_PER_IP]
        self.auto_created_topics.count_max = new.broker[MAX_AUTO_CREATED_TOPICS_PER_IP]

    def admit_topics(self, requester: Requester, names: list[str]) -> list[str]:
        """Those that may be made for somebody who asked for all of them: the first ones. They count."""
        owner, budgets = _owner_of(requester), self.auto_created_topics
        admitted = names[: budgets.left(owner)]
        if admitted:
            budgets.spend(owner, len(admitted))
        refused = len(names) - len(admitted)
        if refused:
            budgets.refused += refused
            suppressed = self._topics_log.suppressed()
            if suppressed is not None:
                logger.warning(
                    "%s at %s: %d topics are not made automatically, it had too many made within an hour "
                    "(max.auto.created.topics.per.ip)%s",
                    requester.principal,
                    requester.host,
                    refused,
                    f" ({suppressed} more requests since the last line)" if suppressed else "",
                    extra={"peer": requester.host},
                )
        return admitted

    def give_back_topics(self, requester: Requester, count: int) -> None:
        """So many that were admitted were not made."""
        self.auto_created_topics.give_back(_owner_of(requester), count)


def _owner_of(requester: Requester) -> tuple[str, str]:
    return str(requester.principal), network_of(requester.host)
