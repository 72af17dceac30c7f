"""`tidelog sim run`: what it prints, what it says of a failure, and what it refuses."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest

from tidelog.cli import app, commit
from tidelog.cli.command import FAILED, USAGE
from tidelog.cli.commit import is_same_commit
from tidelog.server.replication.partition import Partition
from tidelog.sim.runs.run import run_seed

COMMIT = "0123456789ab"
SHORT = ("--minutes", "0.1", "--jobs", "1")


@pytest.fixture(autouse=True)
def _code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit stays the same while a test runs, whoever commits meanwhile."""
    if "git" not in request.node.name:
        monkeypatch.setattr(commit, "commit_of_code", lambda: COMMIT)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert app.run(["sim", "run", *arguments]) == status
    told = capsys.readouterr()
    return told.err if status == USAGE else told.out


def test_a_summary_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run(capsys, "--seeds", "5..6", *SHORT)
    assert "VIRTUAL HOURS" in printed
    assert "AckedRecordsSurvive" in printed
    assert f"nothing broke, commit {COMMIT}" in printed


def test_a_summary_is_printed_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in run(capsys, "--seeds", "6", *SHORT, "--output", "json").splitlines()]
    report = run_seed(6, minutes=0.1)
    assert rows[0]["runs"] == 1
    assert rows[0]["events"] == report.events
    assert {row["fault"]: row["count"] for row in rows if "fault" in row} == report.faults
    assert {row["invariant"]: row["count"] for row in rows if "invariant" in row} == report.checks


def test_a_cluster_is_run_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        json.loads(line)
        for line in run(capsys, "--seeds", "3", "--cluster", "4", *SHORT, "--output", "json").splitlines()
    ]
    assert rows[0]["events"] == run_seed(3, nodes=4, minutes=0.1).events


def test_processes_come_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    alone = run(capsys, "--seeds", "5..6", *SHORT)
    assert run(capsys, "--seeds", "5..6", "--minutes", "0.1", "--jobs", "2") == alone


def test_a_failure_names_its_seed_and_its_shortest_story(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: what was appended is acknowledged before it is synced."""
    monkeypatch.setattr(Partition, "is_sync_awaited", property(lambda _: False))
    lines = run(capsys, "--seeds", "1..40", *SHORT, status=FAILED).splitlines()
    told = lines[next(number for number, line in enumerate(lines) if line.startswith("BROKEN")) :]
    seed = int(told[0].split()[3].rstrip(","))
    assert told[0] == f"BROKEN by seed {seed}, commit {COMMIT}"
    assert told[1].startswith("  AckedRecordsSurvive: ")
    assert "loses power" in told[3]
    number = told[3].split(".")[0].strip()
    whole = f"tidelog sim run --seeds {seed}@{COMMIT} --nodes 1 --minutes 0.1 --only {number}"
    assert told[-1] == f"Run it again: {whole}"
    again = run(capsys, *told[-1].split()[6:], "--jobs", "1", "--output", "json", status=FAILED)
    facts = json.loads(again.splitlines()[-1])
    assert facts["seed"] == seed
    assert facts["attempts"] <= 2  # it is as short as it can be
    assert [f"  {number}. {fault}" for fault in facts["schedule"]] == told[3:-1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--seeds", "5..1"], "'5..1' ends before it begins; 1..5 is meant?"),
        (["--seeds", "words"], "'words' is not a range of seeds such as 1..100"),
        (["--seeds", "-3"], "'-3' is not a range of seeds"),
        (["--seeds", "1.."], "'1..' is not a range of seeds"),
        (["--seeds", "7@"], "'7@' is not a range of seeds"),
        (["--seeds", "1..9999999"], "more than 1,000,000 seeds"),
        (["--seeds", "1", "--minutes", "-1"], "-1.0 is not in the range"),
        (["--seeds", "1", "--minutes", "0"], "0.0 is not in the range"),
        (["--seeds", "1", "--minutes", "soon"], "'soon' is not a number"),
        (["--seeds", "1", "--minutes", "nan"], "nan is no number of minutes"),
        (["--seeds", "1", "--nodes", "0"], "0 is not in the range"),
        (["--seeds", "1", "--nodes", "2"], "--nodes 2: --nodes simulates one node"),
        (["--seeds", "1", "--nodes", "40"], "give --cluster 7 instead"),
        (["--seeds", "1", "--cluster", "2"], "2 is not in the range"),
        (["--seeds", "1", "--nodes", "3", "--cluster", "3"], "give --cluster 3 instead"),
        (["--seeds", "1", "--jobs", "0"], "0 is not in the range"),
        (["--seeds", "1", "--only", "two"], "'two' are not numbers of faults such as 4 or 2,7"),
        (["--seeds", "1", "--only", "0"], "'0' are not numbers of faults"),
        (["--seeds", "1..2", "--only", "1"], "--only names faults of one seed; 1..2 are 2"),
        (["--seeds", "1", "--only", "900", "--minutes", "0.01"], "there is no 900"),
        ([], "Missing option '--seeds'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert complaint in run(capsys, *arguments, status=USAGE)


def test_a_seed_of_another_commit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    complaint = run(capsys, "--seeds", "7@fedcba98", status=USAGE)
    assert f"seed 7 is of commit fedcba98; this is {COMMIT}" in complaint
    assert "git checkout fedcba98" in complaint
    run(capsys, "--seeds", f"6@{COMMIT[:7]}", *SHORT)


def test_outside_of_git_the_version_tells_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_git", lambda *_: "")
    assert commit.commit_of_code() == f"v{version('tidelog')}"


def test_commits_may_be_abbreviated() -> None:
    assert is_same_commit("0123abcd", "0123abcdef01")
    assert is_same_commit("0123abcdef01", "0123abcd")
    assert not is_same_commit("012", "0123abcdef01")
    assert not is_same_commit("0123abcd", "0123abcdef01+changes")
    assert is_same_commit("0123abcd+changes", "0123abcd+changes")
    assert not is_same_commit("v0.1", "v0.1.0")
