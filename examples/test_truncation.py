"""A pipeline's test with a truncation in it: an order is charged, then lost, and its charge has to be undone.

Run it with `pytest examples/test_truncation.py`, where Tidelog is installed. It takes about two seconds.
"""

from __future__ import annotations

from tidelog import Consumer, LogTruncatedError, Producer, TopicPartition
from tidelog.testing import Cluster

ORDERS = TopicPartition("orders", 0)


class Billing:
    """The pipeline: charges each order once, and undoes the charges of orders that the log lost.

    Attributes:
        charges: the offset of each order that was charged, and whom it was charged to.
        consumer: raises an error where the log was truncated: it has no `auto_offset_reset`.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.charges: list[tuple[int, str]] = []
        self.consumer = Consumer(bootstrap_servers, auto_offset_reset="none")
        self.consumer.assign([ORDERS])
        self.consumer.seek_to_beginning()

    def run_once(self) -> None:
        try:
            for order in self.consumer.poll(timeout_ms=1_000):
                self.charges.append((order.offset, (order.value or b"").decode()))
        except LogTruncatedError as truncated:
            self.charges = [one for one in self.charges if one[0] < truncated.seek_to.offset]
            self.consumer.seek(ORDERS, truncated.seek_to)


def place(cluster: Cluster, *customers: str) -> None:
    """Return when the orders are acknowledged by all replicas in sync."""
    with Producer(cluster.bootstrap_servers) as producer:
        for customer in customers:
            producer.send(ORDERS.topic, customer.encode(), partition=ORDERS.partition)


def test_who_was_charged_for_a_lost_order_gets_the_money_back(tidelog_cluster: Cluster) -> None:
    tidelog_cluster.create_topic(ORDERS.topic)
    place(tidelog_cluster, "anna", "ben", "carl")
    billing = Billing(tidelog_cluster.bootstrap_servers)
    while len(billing.charges) < 3:
        billing.run_once()

    lost = tidelog_cluster.truncate(ORDERS.topic, records=1)  # carl's order

    place(tidelog_cluster, "dora")  # at the offset that carl's order had
    while (2, "dora") not in billing.charges:
        billing.run_once()
    assert (lost.start_offset, lost.end_offset) == (2, 3)
    assert billing.charges == [(0, "anna"), (1, "ben"), (2, "dora")]
    billing.consumer.close()
