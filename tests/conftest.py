"""What every test may use: the hypothesis profiles, and real nodes that never outlive the test run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.examples import STANDARD
from support.nodes.node import NodeProcess, StartNode, running_node
from support.one_process import is_begun_first, scope_of

# A run starts hundreds of nodes and commands, each of which would compile all of Tidelog where a shell forbids to keep
# what was compiled (as images for containers do): three times the work of a start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples in every run, however slow the machine: a red test is a change, never luck.
settings.register_profile(
    "tidelog",
    max_examples=STANDARD,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
# Of `make test`, and of `make test-fast`: fewer of them.
settings.register_profile("third", settings.get_profile("tidelog"), max_examples=STANDARD // 3)
settings.register_profile("fast", settings.get_profile("tidelog"), max_examples=STANDARD // 5)
# `pytest --hypothesis-profile=explore` looks further, at random.
settings.register_profile(
    "explore",
    max_examples=2_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("tidelog")

# A run in the background (`make test &`) ignores Ctrl-C, and so would all that it starts, whose Ctrl-C is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def start_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartNode]:
    """Start nodes: `start_node(config={...}, data_dir=...)` returns one that serves. All end with the file's tests.

    A node that nobody uses any more takes a hundredth of a processor.
    """
    with ExitStack() as nodes:

        def start(
            *,
            data_dir: Path | None = None,
            config: dict[str, str] | None = None,
            port: int = 0,
            is_open: bool = False,
        ) -> NodeProcess:
            home = data_dir or tmp_path_factory.mktemp("node")
            node = NodeProcess(home, config=config or {}, port=port, is_open=is_open)
            nodes.callback(node.close)
            node.start()
            return node

        yield start


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all tests that only use it: they take topic names of their own, and never stop it."""
    with running_node(tmp_path_factory.mktemp("shared")) as node:
        yield node


@pytest.fixture
def node(start_node: StartNode) -> Iterator[NodeProcess]:
    """A node of the test's own, to stop, kill and restart."""
    started = start_node()
    yield started
    started.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not is_begun_first(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `--dist loadfile`: as it is, but for the folders that are kept together."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    scheduling = LoadFileScheduling(config, log)
    scheduling._split_scope = scope_of
    return scheduling


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the output of the scenario files anew")


def pytest_configure(config: pytest.Config) -> None:
    # Nothing a test starts may leave this machine, or use what the user's shell happens to say.
    for name in (
        *("TIDELOG_BOOTSTRAP", "TIDELOG_COMMAND_CONFIG", "TIDELOG_PROFILE", "TIDELOG_CONFIG"),
        "JAVA_TOOL_OPTIONS",
    ):
        os.environ.pop(name, None)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
