from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.progress import Reporter
from tidelog.client.admin.cluster_descriptions import EpochSpan
from tidelog.demo.balance import Balance
from tidelog.demo.directories import Directories
from tidelog.demo.evidence import ReplicaLog
from tidelog.demo.flights import Totals, Verdict, books_of, compare
from tidelog.demo.lineages import plot_lineages
from tidelog.demo.report import (
    Outage,
    RunLog,
    audit_line,
    balance_rows,
    carrier_rows,
    complaints,
    ledger_line,
    plot,
    verdict_line,
)
from tidelog.demo.run import DemoOutcome
from tidelog.demo.unclean_election import ACKNOWLEDGED, HEALED, OVERWRITTEN, Cast, Stages
from tidelog.spark.audit_comparison import AuditLine
from tidelog.spark.table_audit import AuditReport

HEADER = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,time_hour\n"
BOOKS = {
    ("UA", "2013-01-01"): Totals(2, 1, 2, 1, 11, 900),
    ("UA", "2013-01-02"): Totals(1, 1, -4, 0, 0, 100),
    ("DL", "2013-01-01"): Totals(1, 1, 6, 1, -9, 50),
}


def log(*spans: tuple[int, int, int]) -> ReplicaLog:
    """Of (leader epoch, start offset, end offset)."""
    return ReplicaLog(tuple(EpochSpan(*span) for span in spans))


def changed(**values: int) -> dict[tuple[str, str], Totals]:
    return {**BOOKS, ("UA", "2013-01-01"): BOOKS["UA", "2013-01-01"]._replace(**values)}


def test_books_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    path.write_text(
        HEADER
        + "2013,1,1,517,515,2,830,819,11,UA,1545,2013-01-01T10:00:00Z\n"
        + "2013,1,1,NA,1630,NA,NA,1815,NA,UA,4308,2013-01-01T21:00:00Z\n"
        + "2013,12,31,2,3,-1,4,5,NA,DL,7,2013-12-31T08:00:00Z\n"
    )
    books = books_of(path)
    assert {key: totals[:5] for key, totals in books.items()} == {
        ("UA", "2013-01-01"): (2, 1, 2, 1, 11),
        ("DL", "2013-12-31"): (1, 1, -1, 0, 0),
    }
    assert books["UA", "2013-01-01"].identities != books["DL", "2013-12-31"].identities > 0


def test_equal_books_are_clean() -> None:
    verdict = compare(BOOKS, dict(BOOKS))
    assert verdict == Verdict(flights_in=4, flights_out=4, lost=0, duplicated=0, differing_days=0)
    assert verdict.is_clean
    assert verdict_line(verdict) == "4 flights in, 4 out, 0 lost, 0 duplicated"


@pytest.mark.parametrize(
    ("found", "lost", "duplicated"),
    [
        (changed(flights=1), 1, 0),
        (changed(flights=5), 0, 3),
        # One lost, another twice: the count is right.
        (changed(identities=901), 1, 1),
        ({key: totals for key, totals in BOOKS.items() if key[0] == "UA"}, 1, 0),
        ({**BOOKS, ("ZZ", "2013-01-01"): Totals(3)}, 0, 3),
        (changed(arrival_delay=12), 0, 0),
    ],
)
def test_any_difference_shows(found: dict[tuple[str, str], Totals], lost: int, duplicated: int) -> None:
    verdict = compare(BOOKS, found)
    assert (verdict.lost, verdict.duplicated, verdict.differing_days) == (lost, duplicated, 1)
    assert not verdict.is_clean
    assert "1 days of a carrier differ from the file" in verdict_line(verdict)


def test_carriers() -> None:
    assert carrier_rows(BOOKS) == [
        {
            "carrier": "UA",
            "flights": 3,
            "never_departed": 1,
            "mean_departure_delay_min": -1.0,
            "never_arrived": 2,
            "mean_arrival_delay_min": 11.0,
        },
        {
            "carrier": "DL",
            "flights": 1,
            "never_departed": 0,
            "mean_departure_delay_min": 6.0,
            "never_arrived": 0,
            "mean_arrival_delay_min": -9.0,
        },
    ]


CLEAN = Balance(
    acknowledged=12_345,
    truncated=0,
    told_readers=0,
    told_consumer=0,
    told_query=0,
    told_producer=0,
    unreported=0,
    unaccounted=0,
    duplicated=0,
    refused=3,
    consumer_differs=0,
    query_differs=0,
    differing_replicas=0,
    inexact=0,
)
TOLD = CLEAN._replace(truncated=600, told_readers=600, told_consumer=600, told_query=600, told_producer=600)


def test_the_ledger_tells_of_all_that_it_counted() -> None:
    assert ledger_line(CLEAN._replace(truncated=1, duplicated=2), 1_250) == (
        "ledger, after two nodes were killed: 12,345 records acknowledged, 1 of them lost, 2 duplicated; "
        "the longest wait for an acknowledgement: 1.2 s"
    )
    rows = {str(row["ledger"]).strip(): row["records"] for row in balance_rows(TOLD._replace(unreported=7))}
    assert rows == {
        "acknowledged": 12_345,
        "truncated by the unclean election": 600,
        "reported to readers": 600,
        "by the Spark query": 600,
        "to the consumer": 600,
        "reported to the producer": 600,
        "reported to nobody": 7,
        "in the cluster's account of losses": 600,
    }


def audited(missing: int = 0) -> AuditReport:
    line = AuditLine("ledger", None, 0, 0, 100, 100 - missing, missing, 0, 0, 0, 0, None)
    return AuditReport([line], "query", 7, 9)


def test_the_audit_is_one_line() -> None:
    said = audit_line(audited(missing=3))
    assert said == "audit of the healed table: 97 rows are as the log gives them, 3 differ, 0 unverifiable"


@pytest.mark.parametrize(
    "wrong",
    [
        {"outages": CLEAN._replace(truncated=1, told_readers=1)},
        {"outages": CLEAN._replace(duplicated=1)},
        {"ledger": CLEAN},  # nothing was truncated: the story did not happen
        *(
            {"ledger": TOLD._replace(**{fault: 1})}
            for fault in (
                "unreported", "unaccounted", "duplicated", "consumer_differs", "query_differs", "differing_replicas",
                "inexact",
            )
        ),
        {"verdict": compare(BOOKS, changed(flights=1))},
        {"audit": audited(missing=1)},
    ],
)  # fmt: skip
def test_what_is_not_clean_shows(tmp_path: Path, wrong: dict[str, Any]) -> None:
    stages, directories = Stages(Cast(0, 1, 2, 3)), Directories(tmp_path)
    clean = DemoOutcome(BOOKS, compare(BOOKS, BOOKS), CLEAN, TOLD, 10, stages, audited(), directories, 0)
    assert clean.is_clean
    assert complaints(clean.ledger) == []
    outcome = replace(clean, **wrong)
    assert not outcome.is_clean
    assert complaints(outcome.ledger) != [] or "ledger" not in wrong or not outcome.ledger.truncated


@pytest.mark.parametrize(
    "run_log",
    [
        RunLog(),
        RunLog(
            written=[(0.5, 1)],
            progress=[(1.0, 2), (3.0, 4)],
            outages=[Outage("the leader", 0.5, 2.5), Outage("the controller", 2.0)],
        ),
    ],
)
def test_the_picture_is_drawn(tmp_path: Path, run_log: RunLog) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'tidelog[demo]'")
    plot(tmp_path / "x.png", BOOKS, run_log, compare(BOOKS, BOOKS), CLEAN)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_of_the_lineages_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'tidelog[demo]'")
    held, stale = log((0, 0, 150), (1, 150, 900)), log((0, 0, 150))
    new = log((0, 0, 150), (4, 150, 1_100))
    stages = Stages(
        Cast(2, 1, 2, 3),
        {
            ACKNOWLEDGED: {1: stale, 2: held, 3: held},
            OVERWRITTEN: {1: new, 2: held, 3: held},
            HEALED: {1: new, 2: new, 3: new},
        },
    )
    assert stages.parts_at() == 150
    plot_lineages(tmp_path / "x.png", stages, TOLD, new)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_only_what_the_demo_made_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("stays")
    directories = Directories(tmp_path)
    for _ in range(2):
        directories.prepare()
        directories.results.mkdir()
        (directories.work / "checkpoint").mkdir()
        with directories.cleaned_up(False, Reporter().say):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delays", "mine.txt"]
    directories.prepare()
    with pytest.raises(ValueError, match="spoilt"), directories.cleaned_up(False, Reporter().say):
        raise ValueError("spoilt")
    assert directories.work.exists()
    assert str(directories.work) in capsys.readouterr().err
