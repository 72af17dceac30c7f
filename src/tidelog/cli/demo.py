"""`tidelog demo`: the whole of it on real data, with a `kill -9` in the middle."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from tidelog.cli.command import FAILED, log_level_option, option, output_option, start_logging
from tidelog.cli.output import Rows, print_rows
from tidelog.cli.progress import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """See it work: three nodes ruined in every way, Spark in and out, and the books balanced to the record.

    First nothing is lost. Three nodes start, Spark writes the 336,776 flights that left New York City in 2013 into a
    topic with three replicas, and a streaming query counts and sums delays by carrier and day. The leader of a
    partition is killed while Spark writes, the active controller while it reads; each is started again. All the while
    numbers are written to a ledger, and read from it.

    Then something is, and everybody is told. A leader of the ledger is killed, and misses what comes next; of the two
    nodes that acknowledged that, one loses a log directory and one is killed. An operator has the stale one elected
    (`tidelog elect --type unclean`), and new records overwrite the old offsets. The others come back and truncate. The
    Spark query that had read the old ones stops and says which range of which partition was truncated; the consumer
    and the producer are told likewise. The query goes on with onTruncation=rewind, its table heals, and an audit
    compares the table with the log.

    In the end the sums are compared with those of the file, and what was acknowledged, told and read with the files of
    every replica. A record that is missing though nobody was told, or any other difference, is exit status 1. Takes
    about a minute and a half.

    Needs the extra `demo`: pip install 'tidelog[demo]'. Spark needs a Java, 17 or later; that extra brings one.

    Examples:

        tidelog demo
        tidelog demo --output-dir /tmp/demo --keep
    """

    output_dir: str = option(
        "--output-dir", default="./demo-output", metavar="DIR", help="Where results and pictures go."
    )
    keep: bool = option("--keep", is_flag=True, help="Keep the nodes' files and Spark's checkpoint, in DIR/work.")
    port: int = option(
        "--port",
        "-p",
        type=click.IntRange(0, 65_535),
        default=0,
        metavar="PORT",
        help="The first node's; 0 takes free ones.",
    )
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> int:
        from tidelog.demo.report import audit_line, balance_rows, carrier_rows, complaints, ledger_line, verdict_line
        from tidelog.demo.run import run_demo

        start_logging(self.log_level)
        with Reporter() as reporter:
            outcome = run_demo(Path(self.output_dir), port=self.port, keep=self.keep, listener=reporter)
        pictures = outcome.directories.picture, outcome.directories.lineages
        if self.output == "json":
            facts = {**outcome.verdict._asdict(), "query_restarts": outcome.query_restarts}
            facts |= {f"ledger_{key}": value for key, value in outcome.ledger._asdict().items()}
            facts |= {f"outages_{key}": value for key, value in outcome.outages._asdict().items()}
            facts |= {"audit_matching": outcome.audit.matching, "audit_differences": outcome.audit.differences}
            facts |= {"table": str(outcome.directories.table)}
            facts |= {"longest_pause_ms": outcome.longest_pause_ms, "results": str(outcome.directories.results)}
            facts |= {"picture": str(pictures[0]), "lineages": str(pictures[1])}
            print_rows(Rows([facts]), "json", sys.stdout)
        else:
            print_rows(Rows(carrier_rows(outcome.books)), "table", sys.stdout)
            print(f"pictures: {pictures[0]}, {pictures[1]}   results: {outcome.directories.results}")
            print(ledger_line(outcome.outages, outcome.longest_pause_ms))
            print_rows(Rows(balance_rows(outcome.ledger)), "table", sys.stdout)
            for text in [*complaints(outcome.outages), *complaints(outcome.ledger)]:
                print(f"WRONG: {text}")
            print(f"{audit_line(outcome.audit)}   table: {outcome.directories.table}")
            print(verdict_line(outcome.verdict), flush=True)
        return 0 if outcome.is_clean else FAILED
