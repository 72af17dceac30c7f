"""`tidelog cluster`: its nodes, and how to forget one."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.errors import UnsupportedVersionError
from tidelog.cli.command import (
    WholeNumber,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Rows, Section, Sections


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCluster:
    """Show the cluster's id and its brokers: where they listen, in which rack they stand, and whether they are up.

    A broker that is fenced is registered, and does not serve: it is down, or on its way up.

    Example:

        tidelog cluster describe
    """

    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Sections:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            try:
                cluster = admin.describe_cluster(include_fenced_brokers=True)
            except UnsupportedVersionError:  # before 4.0 they are not told
                cluster = admin.describe_cluster()
        rows = [
            {
                "broker": each.broker_id,
                "host": each.host,
                "port": each.port,
                "rack": each.rack,
                "fenced": each.is_fenced,
            }
            for each in cluster.brokers
        ]
        title, facts = f"cluster {cluster.cluster_id}", {"cluster_id": cluster.cluster_id}
        return Sections([Section(title, facts, Rows(rows, nothing="no brokers"))])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    """Forget a broker that is down and will not come back.

    Partitions that it held keep it among their replicas until they are given others.

    Example:

        tidelog cluster unregister --broker 3
    """

    broker: int = option("--broker", type=WholeNumber(), required=True, metavar="N", help="The broker.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            admin.unregister_broker(self.broker)
        return Rows([{"unregistered": self.broker}])
