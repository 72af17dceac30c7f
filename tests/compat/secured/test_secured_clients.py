"""Clients of every kind on a listener with SASL_SSL: their mechanisms, their errors, and sessions that end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from compat.secured.clients import CLIENTS, TOKEN, Client, Run
from compat.secured.task import Task
from support.fixtures.waiting import wait_until
from support.nodes.metrics import samples
from support.nodes.secured_cluster import OAUTHBEARER, RENEWED_MS, Login, SecuredCluster, oauth_login
from tidelog import NewTopic

pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'tidelog[security]'")

pytest.importorskip("joserfc")
from support.fixtures.json_web_tokens import Signer

pytestmark = pytest.mark.timeout(600)  # a Go program may have to be built

STAY_SECONDS = 2.5 * RENEWED_MS / 1_000
Runs = Callable[[str], Run]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    config = {"metrics.listener": "HTTP://127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    cluster = SecuredCluster(tmp_path_factory.mktemp("secured"), 1, config=config, signer=Signer("one", "ES256"))
    try:
        cluster.start()
        with cluster.admin_client() as admin:
            admin.create_topics([NewTopic("forbidden", 1)])
        yield cluster
        cluster.cluster.check_logs()
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """What runs the tasks of a client, by its name. It skips where the client cannot be run."""
    prepared: dict[str, tuple[Run, Callable[[], None]]] = {}

    def run_of(name: str) -> Run:
        if name not in prepared:
            if (reason := CLIENTS[name].missing()) is not None:
                pytest.skip(reason)
            prepared[name] = CLIENTS[name].prepare(tmp_path_factory.mktemp(name.replace("'", "")))
        return prepared[name][0]

    yield run_of
    for _, close in prepared.values():
        close()


@pytest.fixture
def allowed_topic(secured: SecuredCluster, numbers: Iterator[int]) -> str:
    """A topic that alice may use."""
    name = f"allowed-{next(numbers)}"
    with secured.admin_client() as admin:
        admin.create_topics([NewTopic(name, 1)])
    return name


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count()


def login_of(secured: SecuredCluster, mechanism: str) -> Login:
    return secured.token_login("SCRAM-SHA-256") if mechanism == TOKEN else secured.login(mechanism)


def task_of(
    secured: SecuredCluster, login: Login, story: str, topic: str, *, listener: str = "CLIENTS", seconds: float = 0.0
) -> Task:
    return Task(
        story=story,
        bootstrap=secured.bootstrap(listener),
        authority=str(secured.authority),
        mechanism=login.mechanism,
        username=login.username,
        password=login.password,
        tokenauth=login.tokenauth,
        topic=topic,
        transactional=True,
        seconds=seconds,
    )


CASES = [
    pytest.param(name, mechanism, marks=[] if mechanism == client.quick else [pytest.mark.slow])
    for name, client in CLIENTS.items()
    for mechanism in sorted(client.mechanisms)
]
each_client = pytest.mark.parametrize("name", CLIENTS)


@pytest.mark.parametrize(("name", "mechanism"), CASES)
def test_it_writes_reads_and_commits(
    secured: SecuredCluster, runs: Runs, allowed_topic: str, name: str, mechanism: str
) -> None:
    task = task_of(secured, login_of(secured, mechanism), "work", allowed_topic)
    assert runs(name)(task) == ["partitions 1", *(f"read {value}" for value in task.values), "committed"]


PASSWORD_CASES = [
    pytest.param(name, mechanism) for name in CLIENTS for mechanism in ("PLAIN", "SCRAM-SHA-256", OAUTHBEARER)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mechanism"), PASSWORD_CASES)
@pytest.mark.parametrize("story", ["send", "list"])
def test_a_wrong_password_is_the_clients_own_error(
    secured: SecuredCluster, runs: Runs, name: str, mechanism: str, story: str
) -> None:
    client = CLIENTS[name]
    if mechanism == OAUTHBEARER:
        wrong, error = oauth_login(Signer("one", "ES256")), client.unknown_token or client.unknown
    else:
        wrong, error = Login(mechanism, "alice", "not hers"), client.unknown
    assert runs(name)(task_of(secured, wrong, story, "allowed-none")) == [f"error {error}"]


@pytest.mark.slow
@each_client
@pytest.mark.parametrize("story", ["send", "list"])
def test_a_denied_topic_is_the_clients_own_error(secured: SecuredCluster, runs: Runs, name: str, story: str) -> None:
    said = runs(name)(task_of(secured, secured.login("SCRAM-SHA-256"), story, "forbidden"))
    assert said == [f"error {CLIENTS[name].denied}"]


def sessions_ended(secured: SecuredCluster) -> float:
    """How many connections the node has ended because nobody authenticated on them in time."""
    (node,) = secured.cluster.nodes.values()
    return samples(node)["tidelog_connections_closed_total", ("authentication",)]


@pytest.mark.slow
@each_client
@pytest.mark.parametrize("by", ["password", OAUTHBEARER])
def test_a_session_that_ends_goes_unnoticed(
    secured: SecuredCluster, runs: Runs, allowed_topic: str, name: str, by: str
) -> None:
    client: Client = CLIENTS[name]
    with_password = TOKEN if TOKEN in client.mechanisms else "SCRAM-SHA-512"
    mechanism = OAUTHBEARER if by == OAUTHBEARER else with_password
    before = sessions_ended(secured)
    login = login_of(secured, mechanism)
    (said,) = runs(name)(task_of(secured, login, "stay", allowed_topic, listener="RENEWED", seconds=STAY_SECONDS))
    what, many = said.split()
    assert what == "sent", said
    assert int(many) > 5
    if client.renews:
        assert sessions_ended(secured) == before
    else:
        wait_until(lambda: sessions_ended(secured) > before, "the node has ended a session")
