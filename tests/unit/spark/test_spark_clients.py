"""The clients that a process of Spark keeps from task to task."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.spark.clients import IDLE_MAX, _Kept


@dataclass(eq=False)
class Client:
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


def test_a_client_is_lent_again_by_its_settings() -> None:
    kept: _Kept[Client] = _Kept()
    one, other = Client(), Client()
    kept.give_back({"client_id": "one"}, one)
    kept.give_back({"client_id": "other"}, other)
    assert kept.take({"client_id": "one"}) is one
    assert kept.take({"client_id": "one"}) is None


def test_of_clients_that_nobody_asks_for_only_the_latest_stay_connected() -> None:
    kept: _Kept[Client] = _Kept()
    clients = [Client() for _ in range(IDLE_MAX + 1)]
    for number, client in enumerate(clients):
        kept.give_back({"client_id": str(number)}, client)
    assert [client.is_closed for client in clients] == [True] + [False] * IDLE_MAX
    assert kept.take({"client_id": "0"}) is None
    assert kept.take({"client_id": "1"}) is clients[1]
