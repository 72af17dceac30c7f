"""The suite of librdkafka's tests: its lists agree, and it reads the runner's output as it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.librdkafka import suite
from compat.librdkafka.suite import Outcome, Run, conclude, lacking, outcomes_of, reasons_in

RAN = """\
\x1b[33m[0045_local                  /  0.000s] WARN: SKIPPING TEST: Filtered due to negative test flags
\x1b[33m[0045_stats                  /  0.000s] WARN: SKIPPING TEST: RapidJSON >=1.1.0 not available
\x1b[31m### Test "0045_subscribe_adds" failed at 0045-subscribe.c:12:main() at Mon Nov 23 15:05:32 2026: ###
main():12: Expected 3 partitions, not 2
TEST 20261123150532 (bare, scenario default) SUMMARY
#==================================================================#
|\x1b[31m <MAIN>                                   |     PASSED |  20.007s \x1b[0m|
|\x1b[32m 0045_subscribe_update                    |     PASSED |  12.242s \x1b[0m|
|\x1b[31m 0045_subscribe_adds                      |     FAILED |   1.500s \x1b[0m| main():12: Expected 3
|\x1b[36m 0045_stats                               |    SKIPPED |   0.001s \x1b[0m| RapidJSON >=1.1.0
#==================================================================#
"""


def test_every_test_is_listed_as_run_or_says_why_not() -> None:
    listed = reasons_in("LIST")
    assert len(listed) > 190
    for name, what in listed.items():
        assert what == "run" or (what.startswith("not run: ") and len(what) > len("not run: ")), name


def test_what_wants_more_than_a_broker_is_run() -> None:
    listed = reasons_in("LIST")
    assert {listed[name] for name in suite.WANTS_KAFKA | suite.WANTS_SSL} == {"run"}


def test_what_is_not_on_this_machine_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "missing_peers", lambda: "there is no Kafka here")
    (tmp_path / "config.h").write_text("#define WITH_ZLIB 1\n")
    plain, tls, kafka = (
        lacking(tmp_path, Run(name[:4], "default", (name,)))
        for name in ("0001_multiobj", "0064_interceptors", "0077_compaction")
    )
    assert (plain, kafka) == (None, "there is no Kafka here")
    assert tls is not None
    assert "libssl-dev" in tls
    (tmp_path / "config.h").write_text("#define WITH_SSL 1\n")
    assert lacking(tmp_path, Run("0064", "default", ("0064_interceptors",))) is None


def test_what_may_fail_is_run() -> None:
    listed = reasons_in("LIST")
    for name, reason in reasons_in("ALLOW").items():
        assert listed[name.partition("/")[0]] == "run", name
        assert reason, name


def test_each_test_of_one_process_has_its_own_outcome() -> None:
    run = Run("0045", "default", ("0045_subscribe_update", "0045_subscribe_adds", "0045_stats"))
    passed, failed, skipped = outcomes_of(run, RAN, 20.0)
    assert (passed.name, passed.result, passed.seconds) == ("0045_subscribe_update", "passed", 12.242)
    assert (failed.result, failed.reason) == ("failed", "0045-subscribe.c:12 main():12: Expected 3 partitions, not 2")
    assert (skipped.result, skipped.reason) == ("skipped", "RapidJSON >=1.1.0 not available")


def test_what_was_cut_short_failed() -> None:
    (outcome,) = outcomes_of(Run("0113", "default", ("0113_cooperative_rebalance",)), "", 9.0, "not done within 9 s")
    assert (outcome.result, outcome.seconds, outcome.reason) == ("failed", 9.0, "not done within 9 s")


def test_a_fault_that_a_test_only_mentions_is_a_failure() -> None:
    said = "rxbytes was not highest on broker corresponding to client.rack.\n"
    table = "| 0101_fetch_from_follower | PASSED | 5.242s |\n"
    run = Run("0101", "default", ("0101_fetch_from_follower",))
    assert [each.result for each in outcomes_of(run, said + table, 5.0)] == ["failed"]
    assert [each.result for each in outcomes_of(run, table, 5.0)] == ["passed"]


def test_a_part_that_never_began_did_not_pass() -> None:
    table = "| 0137_barrier_batch_consume | PASSED | 1.0s |\n"
    run = Run("0137", "default", ("0137_barrier_batch_consume",), part="do_test_seek")
    (outcome,) = outcomes_of(run, table, 1.0)
    assert (outcome.name, outcome.result) == ("0137_barrier_batch_consume/do_test_seek", "skipped")
    (outcome,) = outcomes_of(run, "[ do_test_seek:53: seeking ]\n" + table, 1.0)
    assert outcome.result == "passed"


def test_what_is_not_as_allowed_counts() -> None:
    def run(result: str, reasons: dict[str, str]) -> int:
        return conclude([Outcome("0026_pause", result, 1.0, "")], reasons)

    assert run("passed", {}) == run("skipped", {}) == 0
    assert run("failed", {}) == 1
    assert run("failed", {"0026_pause": "not served"}) == 0
    assert run("passed", {"0026_pause": "not served"}) == 1
