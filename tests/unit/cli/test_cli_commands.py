"""What is typed: flags, help, usage errors and exit statuses, without a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tidelog.base.errors import Code, ConfigError, DiskError, refusal
from tidelog.cli import app
from tidelog.cli.command import (
    FAILED,
    INTERRUPTED,
    PIPE_CLOSED,
    USAGE,
    UsageError,
    execute,
    option,
    to_click,
)
from tidelog.cli.consume import Consume
from tidelog.cli.output import Rows
from tidelog.cli.produce import read_records
from tidelog.cli.server import Server, read_properties


def leaves(table: dict[str, str | dict[str, str]], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, entry in table.items():
        if isinstance(entry, dict):
            yield from ((*path, name, inner) for inner in entry)
        else:
            yield (*path, name)


COMMANDS = sorted(leaves(app.COMMANDS))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*path, "--help"]) == 0
    said = capsys.readouterr().out
    assert "Example" in said
    assert f"    tidelog {' '.join(path)}" in said or f"| tidelog {' '.join(path)}" in said


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_that_returns_rows_prints_json_too(path: tuple[str, ...]) -> None:
    command: click.Command | None = app.root
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    choices = [option.type.choices for option in command.params if isinstance(option.type, click.Choice)]
    rowless = {("up",), ("server",), ("demo",)}
    assert (path in rowless) or any("json" in choice for choice in choices)


def test_help_without_a_command_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--help"]) == 0
    said = capsys.readouterr().out
    for name in app.COMMANDS:
        assert f"\n  {name} " in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: Missing command. See 'tidelog --help'."),
        (["topics"], "error: Missing command. See 'tidelog topics --help'."),
        (["nonsense"], "No such command 'nonsense'"),
        (["topics", "create"], "Missing argument 'TOPIC'"),
        (["up", "--nodes", "0"], "'0' is not a whole number from 1 to "),
        (["up", "--nodes", "3", "--port", "65534"], "--port 65534: 3 nodes need as many ports"),
        (["up", "--metrics-port", "70000"], "--metrics-port 70000 is no port"),
        (["up", "--port", "70000"], "--port 70000 is no port"),
        (["up", "--config", "node.id=3"], "sets this key itself"),
        (["up", "--nodes", "3", "--config", "metadata.log.dir=/m"], "sets this key itself"),
        (["up", "--disks", "2", "--config", "metadata.log.dir=/m"], "sets this key itself"),
        (["up", "--config", "novalue"], "is not KEY=VALUE. See"),
        (
            ["up", "--data", "/dev/null/data"],
            "--data /dev/null/data: /dev/null/data cannot be written: Not a directory",
        ),
        (["up", "--log-level", "loud"], "'loud' is not one of"),
        (["topics", "list", "--bootstrap", "no where"], "'no where' is not an address"),
        (["log", "dump", "/nowhere"], "/nowhere: there is no such file"),
        (["log", "dump", "/dev/fd/"], "no file of a log is in it; name the directory of a partition"),
        (["storage", "format", "--cluster-id", "x"], "--data DIR and --node-id N"),
        (["elect", "--all"], "Missing option '--type'. Choose from: preferred, unclean. See 'tidelog elect --help'."),
        (["topics", "create", "t", "--partitions", "x"], "'x' is not a whole number from 1 to 2147483647. See"),
        (["transactions", "find-hanging", "--idle-for", "1s"], "'1s' is not a number from 0 to 2147483647. See"),
        (
            ["losses", "export", "t-0@1", "--to", "/nowhere/t.arrow"],
            "--to /nowhere/t.arrow: its directory is not there",
        ),
        (["elect", "--type", "preferred"], "say which partitions"),
        (["elect", "--type", "preferred", "--all", "--topic", "t"], "say which partitions"),
        (["elect", "--type", "preferred", "--all", "--partition", "1"], "--partition needs --topic"),
        (["reassign", "run"], "say what is to move: a PLAN, or"),
        (["reassign", "run", "/nowhere.json", "--topic", "t"], "say what is to move"),
        (["reassign", "run", "/nowhere.json"], "/nowhere.json cannot be read as a plan"),
        (["reassign", "status", "/dev/null"], "/dev/null cannot be read as a plan"),
        (["reassign", "run", "--brokers", "1,x"], "'1,x' is not a list of broker ids"),
        (["reassign", "run", "--topic", "t:x"], "is not TOPIC or TOPIC:PARTITION"),
        (
            ["reassign", "run", "--topic", "t", "--throttle", "0"],
            "'0' is not a whole number from 1 to 92233",
        ),
        (["reassign", "cancel"], "say what is to go back"),
        (["reassign", "cancel", "--all", "--topic", "t"], "say what is to go back"),
        (["features", "upgrade"], "say --feature NAME=LEVEL"),
        (
            ["features", "upgrade", "--release-version", "9.9"],
            "no such release is known here; there are 3.5, 3.6, 3.7, ",
        ),
        (["features", "upgrade", "--release-version", "30"], "--release-version 30: no such release"),
        (["features", "downgrade", "--release-version", "4.1", "--feature", "a=1"], "exclude each other"),
        (["features", "upgrade", "--feature", "m=x"], "--feature m=x: a level is a number"),
        (["features", "downgrade", "--feature", "m=1", "--feature", "m=2"], "named more than once"),
        (["quorum", "add-voter"], "give --config-file FILE, or all of --node-id"),
        (["quorum", "add-voter", "--config-file", "f", "--node-id", "1"], "leave those out"),
        (
            ["quorum", "add-voter", "--node-id", "4", "--directory-id", "x", "--endpoint", "C://h:1"],
            "--directory-id: 'x' is not a Kafka id",
        ),
        (
            ["quorum", "add-voter", "--node-id", "4", "--directory-id", "A" * 22, "--endpoint", "h:1"],
            "is not of the form NAME://HOST:PORT",
        ),
        (["quorum", "remove-voter", "--node-id", "4", "--directory-id", "x"], "is not a Kafka id"),
        (["topics", "describe", "--configs", "--offline"], "give one or the other"),
        (["consume", "t", "--offset", "-3"], "is not earliest, latest or an offset from 0"),
        (["consume", "t", "--offset", "3", "--from-beginning"], "exclude each other"),
        (["consume", "t", "--count", "0"], "'0' is not a whole number from 1 to "),
        (["consume", "t", "--offset", str(2**63)], "is not earliest, latest or an offset from 0"),
        (
            ["topics", "create", "t", "--partitions", str(2**31)],
            "'2147483648' is not a whole number from 1 to ",
        ),
        (["topics", "list", "--timeout", "nan"], "'nan' is not a number from 0.001 to 2147483"),
        (["topics", "list", "--timeout", "inf"], "'inf' is not a number from 0.001 to 2147483"),
        (["transactions", "list", "--open-for", "1e300"], "'1e300' is not a number from 0 to 2147483647"),
        (["topics", "describe", "\udcff"], "'\\udcff' is not UTF-8"),
        (["topics", "list", "--bootstrap", ","], "--bootstrap names no server"),
        (["up", "--data", ""], "--data is empty"),
        (["profiles", "show", "\x1b[31m"], "there is no profile '\\x1b[31m'"),
        (["spark", "audit", "t", "--checkpoint", "c", "--derive", "\x1b[31m"], "--derive \\x1b[31m: MODULE:FUNCTION"),
        (["server", "/nowhere/x.properties"], "/nowhere/x.properties: No such file"),
    ],
)
def test_what_cannot_be_meant_ends_with_status_2_and_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == USAGE
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raises:
    """Raise what it is given.

    Example:

        tidelog raises
    """

    log_level: str = option("--log-level", default="warning")
    error: BaseException | None = option("--error", default=None)

    def run(self) -> Rows | None:
        if self.error is not None:
            raise self.error
        return None


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ""),
        (refusal(Code.TOPIC_ALREADY_EXISTS, "topic t exists"), FAILED, "error: topic t exists\n"),
        (DiskError("/data", "no space\nleft"), FAILED, "error: /data: no space left\n"),
        (ConnectionRefusedError(111, "Connection refused"), FAILED, "error: [Errno 111] Connection refused\n"),
        (ConfigError("no key x"), USAGE, "error: no key x\n"),
        (UsageError("neither"), USAGE, "error: neither\n"),
        (KeyboardInterrupt(), INTERRUPTED, ""),
    ],
)
def test_what_went_wrong_becomes_one_line_and_a_status(
    error: BaseException | None, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(Raises(log_level="warning", error=error)) == status
    assert capsys.readouterr().err == said


def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    execute(Raises(log_level="debug", error=ConfigError("no key x")))
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_is_not_dressed_up_as_a_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        execute(Raises(log_level="warning", error=ZeroDivisionError()))


def test_a_docstring_is_the_help_and_its_example_keeps_its_lines() -> None:
    said = CliRunner().invoke(to_click("raises", Raises), ["--help"]).output
    assert "Raise what it is given." in said
    assert "\n      tidelog raises\n" in said


def test_a_reader_that_hangs_up_ends_a_command_quietly() -> None:
    source = (
        "from tidelog.cli.command import execute\n"
        "from tidelog.cli.output import Rows\n"
        "class Endless:\n"
        "    def run(self): return Rows({'n': n} for n in iter(int, 1))\n"
        "raise SystemExit(execute(Endless()))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), said) == (PIPE_CLOSED, b"")


def test_lines_become_records() -> None:
    lines = [b"one\n", b"\n", b"last"]
    assert list(read_records(lines, None)) == [(None, b"one"), (None, b""), (None, b"last")]
    assert list(read_records([b"k:v:w\n", b":x"], ":")) == [(b"k", b"v:w"), (b"", b"x")]


def test_a_line_without_its_separator_is_named() -> None:
    records = read_records([b"a:1\n", b"b\n"], ":")
    assert next(records) == (b"a", b"1")
    with pytest.raises(UsageError, match="line 2 has no ':'"):
        next(records)


def test_a_properties_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.properties"
    path.write_bytes(b"a=\xff")
    with pytest.raises(ConfigError, match="byte 2 is not UTF-8"):
        read_properties(str(path))


def test_the_command_to_run_a_node_loads_no_client_and_no_table() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys; from tidelog.cli import app; from tidelog.cli.server import Server;"
         "app.run(['server', '/nowhere']); print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    unwanted = [name for name in loaded if name.split(".")[0] in ("rich", "pyarrow", "pyspark", "asyncio", "logging")]
    assert unwanted == []
    assert not any(name.startswith("tidelog.client") for name in loaded)


def test_commands_are_values() -> None:
    server = Server(file="a", config=(), log_level="info", log_format=None, ready_fd=None, parent_fd=None)
    assert server == Server(file="a", config=(), log_level="info", log_format=None, ready_fd=None, parent_fd=None)
    with pytest.raises(AttributeError):
        server.file = "b"  # type: ignore[misc]
    assert Consume.__doc__ is not None
