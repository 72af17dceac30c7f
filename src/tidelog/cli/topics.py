"""`tidelog topics`: create, list, describe and delete."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.command import (
    argument,
    bootstrap_option,
    config_option,
    log_level_option,
    option,
    output_option,
    start_logging,
)
from tidelog.cli.output import Rows

if TYPE_CHECKING:
    from tidelog import Admin


def open_admin(bootstrap: str, log_level: str) -> closing[Admin]:
    """A connected Admin, as a context that closes it."""
    start_logging(log_level)
    from tidelog import Admin

    return closing(Admin(bootstrap_servers=bootstrap, client_id="tidelog-topics"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create TOPIC.

    Example:

        tidelog topics create flights --partitions 4 --config max.message.bytes=2000000
    """

    topic: str = argument(metavar="TOPIC")
    partitions: int | None = option(
        "--partitions", type=click.IntRange(min=1), default=None, metavar="N", help="How many; the broker's default."
    )
    replication_factor: int | None = option(
        "--replication-factor",
        type=click.IntRange(min=1),
        default=None,
        metavar="N",
        help="Replicas of each partition.",
    )
    config: tuple[tuple[str, str], ...] = config_option("A setting of the topic, by Kafka's key. May be repeated.")
    if_not_exists: bool = option("--if-not-exists", is_flag=True, help="It is no failure if the topic is there.")
    bootstrap: str = bootstrap_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        from tidelog import NewTopic, TopicAlreadyExistsError

        wanted = NewTopic(
            self.topic,
            num_partitions=self.partitions,
            replication_factor=self.replication_factor,
            configs=dict(self.config),
        )
        with open_admin(self.bootstrap, self.log_level) as admin:
            try:
                admin.create_topics([wanted])
            except TopicAlreadyExistsError:
                if not self.if_not_exists:
                    raise
            return Rows(list(summaries(admin, [self.topic])))
