"""Every task of a node has an owner: nothing in the server starts one but `server/tasks.py`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SERVER = Path(__file__).parents[2] / "src" / "tidelog" / "server"
OWNER = "tasks.py"
BARE = {"create_task", "ensure_future", "TaskGroup", "Task"}
KEEPERS = {
    "main.py": "awaits the start of the node, which owns the rest",
    "api/long_requests.py": "awaits the pieces of a request, and cancels them where nobody does any more",
    "broker/cleaner.py": "awaits the sync that runs beside the first steps of a compaction",
    "transport/answer_sender.py": "reads one piece of an answer at a time, for as long as its connection is open",
    "transport/server_connection.py": "answers one request at a time, for as long as it is open",
}
"""Those that keep a task themselves: it awaits or cancels each, and handles whatever is raised."""

FILES = sorted(SERVER.rglob("*.py"))


def calls(source: str) -> list[tuple[int, str]]:
    """What is called by which name, whatever it is called on, with the line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found.append((node.lineno, name))
    return found


def bare_tasks(source: str) -> list[str]:
    """Tasks that are started without an owner, as `line: call`."""
    return [f"{line}: {name}" for line, name in calls(source) if name in BARE]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SERVER).as_posix())
def test_no_task_is_started_without_an_owner(path: Path) -> None:
    if path.relative_to(SERVER).as_posix() != OWNER:
        assert bare_tasks(path.read_text()) == []


def test_those_that_keep_a_task_themselves_are_listed_with_a_reason() -> None:
    keeping = {
        path.relative_to(SERVER).as_posix()
        for path in FILES
        if any(name == "start_kept" for _, name in calls(path.read_text()))
    }
    assert keeping == KEEPERS.keys()


@pytest.mark.parametrize(
    "source",
    ["asyncio.create_task(work())", "loop.create_task(work())", "ensure_future(work())", "asyncio.TaskGroup()"],
)
def test_the_check_above_sees_what_it_forbids(source: str) -> None:
    assert bare_tasks(source)
