"""The move of a running cluster from PLAINTEXT to SASL_SSL, as docs/security.md tells it: each file, each command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from support.fixtures.certificates import Authority, missing_openssl
from support.fixtures.waiting import wait_until
from support.load.verifying import VerifyingLoad, verifying_load
from support.load.ways import Login, Way
from support.nodes.forked_command import run_command
from support.nodes.server_process import ServerProcess
from tidelog import Admin, NewTopic, SaslAuthenticationError
from tidelog.base.errors import KafkaError, TidelogError
from tidelog.base.ids import uuid_text
from tidelog.cli.ports import free_ports
from tidelog.cli.properties import parse_properties

HOST = "127.0.0.1"
CONTROLLERS = (1, 2, 3)
CONTROLLER, BROKER = 3, 4
"""A controller that is no broker, and a broker that is no controller, where the metadata log says who votes."""
OF_CONTROLLERS = ("CONTROLLER:", "QUORUM:")
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
VOTERS, BOOTSTRAP = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
CLIENTS = 9094
TOPIC, PARTITIONS, REPLICAS = "orders", 3, 3
GROUP = "none"  # of librdkafka's readers
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
HEADING = "## From PLAINTEXT to SASL_SSL without an outage\n"
PAUSE_SECONDS_MAX = 15.0
"""Of a producer between two acknowledgements: a failover on a slow machine, not a session that ends, and then one."""
COMMAND_SECONDS_MAX = 60.0
BETWEEN = 30  # records of each producer

pytestmark = pytest.mark.skipif(missing_openssl() is not None, reason=str(missing_openssl()))


class Step(NamedTuple):
    """What the page says under one heading.

    Attributes:
        settings: of node 1, those that change.
        commands: of `tidelog`, without that word.
        client: the file of a client, as text.
    """

    title: str
    settings: Mapping[str, str]
    commands: list[list[str]]
    client: str | None


def steps() -> list[Step]:
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    found = []
    for text in section.split("\n### ")[1:]:
        title = text.partition("\n")[0]
        settings: dict[str, str] = {}
        client = None
        for block in re.findall(r"```properties\n(.*?)```", text, re.DOTALL):
            if "security.protocol=" in block:
                client = block
            else:
                settings |= parse_properties(block, source=title)
        shell = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
        commands = [shlex.split(line)[1:] for line in shell.splitlines() if line.startswith("tidelog ")]
        found.append(Step(title, settings, commands, client))
    return found


class Moving:
    """The cluster of the page, on this machine: hosts, ports, files and the group are replaced.

    Args:
        is_dynamic: the metadata log says who votes, and two nodes have one role each.
    """

    def __init__(self, home: Path, *, is_dynamic: bool) -> None:
        self.home = home
        self.is_dynamic = is_dynamic
        self.roles = {CONTROLLER: "controller", BROKER: "broker"} if is_dynamic else {}
        numbers = (*CONTROLLERS, BROKER) if is_dynamic else CONTROLLERS
        self.authority = Authority(home)
        (home / "authority.pem").write_text(self.authority.certificate.read_text())
        places = [(node, port) for node in numbers for port in range(9092, 9097)]
        self.ports = dict(zip(places, free_ports(HOST, [None] * len(places)), strict=True))
        self.nodes: dict[int, ServerProcess] = {}
        for number in numbers:
            (home / f"node-{number}.pem").write_text(
                self.authority.sign(f"node-{number}", hosts=f"IP:{HOST}").both.read_text()
            )
            node = ServerProcess(home, home / f"data-{number}", node_id=number)
            node.settings.clear()
            self.nodes[number] = node
        for user in ("admin", "app"):
            (home / user).write_text(f"of-{user}\n")

    def here(self, text: str) -> str:
        """What stands on the page, for this machine."""
        text = text.replace("/etc/tidelog/", f"{self.home}/").replace("/run/secrets/", f"{self.home}/")
        text = text.replace("billing", GROUP)
        return re.sub(r"node-(\d):(\d+)", lambda found: f"{HOST}:{self.ports[int(found[1]), int(found[2])]}", text)

    def configure(self, number: int, settings: Mapping[str, str]) -> None:
        """Change the file of a node."""
        for key, value in settings.items():
            own = value if key == VOTERS else value.replace("node-1", f"node-{number}")
            if key == "listeners" and number in self.roles:
                is_broker = self.roles[number] == "broker"
                own = ",".join(one for one in own.split(",") if one.startswith(OF_CONTROLLERS) is not is_broker)
            self.nodes[number].settings[key] = self.here(own)
        fixed = {"node.id": str(number), "log.dirs": str(self.home / f"data-{number}")}
        if number in self.roles:
            fixed["process.roles"] = self.roles[number]
        if self.is_dynamic and VOTERS in settings:
            fixed[BOOTSTRAP] = re.sub(r"\d@", "", self.nodes[number].settings.pop(VOTERS))
        self.nodes[number].settings |= fixed

    def start(self, settings: Mapping[str, str]) -> None:
        voters = ",".join(
            f"{number}@{self.here(f'node-{number}:9093')}:{uuid_text(UUID(int=100 + number))}" for number in CONTROLLERS
        )
        for number, node in self.nodes.items():
            self.configure(number, settings)
            node.write_settings()
            command = ["storage", "format", "--cluster-id", CLUSTER, "--config-file", str(node.properties_path)]
            if self.is_dynamic:
                command += ["--initial-controllers", voters] if number != BROKER else ["--no-initial-controllers"]
            run(command)
            node.start_soon()
        for node in self.nodes.values():
            node.wait_until_serving()

    @property
    def brokers(self) -> list[int]:
        return [number for number in self.nodes if self.roles.get(number) != "controller"]

    def bootstrap(self, port: int) -> str:
        return self.here(",".join(f"node-{number}:{port}" for number in self.brokers))

    def way(self, user: str) -> Way:
        """Of a client that has moved."""
        return Way(self.bootstrap(CLIENTS), Login(user, f"of-{user}", self.home / "authority.pem"))

    def roll(self, settings: Mapping[str, str], load: VerifyingLoad, is_in_sync: Callable[[], bool]) -> None:
        for number, node in self.nodes.items():
            node.end()
            self.configure(number, settings)
            node.start()
            wait_until(is_in_sync, f"node {number} is in sync", seconds=60)
            load.until_acknowledged(BETWEEN)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


def run(command: list[str]) -> None:
    """`tidelog COMMAND`."""
    ran = run_command(command, timeout=COMMAND_SECONDS_MAX)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(params=["voters in the files", pytest.param("voters in the log", marks=pytest.mark.slow)])
def moving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path, is_dynamic=request.param == "voters in the log")
    yield moving
    moving.close()


@pytest.mark.timeout(300)  # some twenty restarts
def test_no_client_notices_that_the_cluster_moves(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = steps()
    assert len(others) == 6
    moving.start(first.settings)
    old = Way(moving.bootstrap(9092))
    way = old  # of the tools

    def is_in_sync() -> bool:
        try:
            with Admin(way.bootstrap, **way.of_ours) as admin:
                described = admin.describe_topics([TOPIC, "__consumer_offsets"])
        except KafkaError:
            return False
        return all(len(one.isr) == REPLICAS for topic in described.values() for one in topic.partitions)

    with Admin(old.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS, {"min.insync.replicas": "2"})])
    with verifying_load(old, TOPIC, PARTITIONS) as load:
        load.until_acknowledged(BETWEEN)
        for step in others:
            if step.settings:
                moving.roll(step.settings, load, is_in_sync)
            for command in step.commands:
                run(list(map(moving.here, command)))
            if step.client is not None:
                (moving.home / "admin.properties").write_text(moving.here(step.client))
                monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(moving.home / "admin.properties"))
                way, load.way = moving.way("admin"), moving.way("app")
                load.until_acknowledged(BETWEEN)
        history = load.finish()
    history.check()
    assert not history.failed
    assert not history.reported
    assert max(load.pauses.values()) < PAUSE_SECONDS_MAX, load.pauses
    _is_secured(moving)


def _is_secured(moving: Moving) -> None:
    """The old ports are shut; nobody is let in who does not say who it is, and who does may do what rules say."""
    for number, port in moving.ports:
        plain = Admin(moving.here(f"node-{number}:{port}"), request_timeout_ms=500, default_api_timeout_ms=500)
        with plain, pytest.raises(TidelogError):
            plain.list_topics()
    app = moving.way("app")
    with Admin(app.bootstrap, **app.of_ours) as admin, pytest.raises(KafkaError):
        admin.create_topics([NewTopic("another", 1, 3)])
    wrong = app.of_ours | {"sasl_password": "wrong"}
    with pytest.raises(SaslAuthenticationError), Admin(app.bootstrap, **wrong) as admin:
        admin.list_topics()
