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
    """See it work: three nodes, Spark in and out, two of them killed with kill -9, and the books balanced.

    Starts three nodes, writes the 336,776 flights that left New York City in 2013 into a topic with three replicas
    through Spark, and runs a streaming query over them that counts and sums delays by carrier and day. The leader of a
    partition is killed while Spark writes, the active controller while it reads; each is started again. All the while
    numbers are written to a ledger, and read from it. In the end the sums are compared with those of the file, and what
    was acknowledged with what was read; any difference is exit status 1. Takes a minute or two.

    Needs the extra `demo`: pip install 'tidelog[demo]'. Spark needs a Java, 17 or later; that extra brings one.

    Examples:

        tidelog demo
        tidelog demo --output-dir /tmp/demo --keep
    """

    output_dir: str = option(
        "--output-dir", default="./demo-output", metavar="DIR", help="Where results and picture go."
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
        from tidelog.spark.demo.report import carrier_rows, ledger_line, verdict_line
        from tidelog.spark.demo.run import run_demo

        start_logging(self.log_level)
        with Reporter() as reporter:
            outcome = run_demo(Path(self.output_dir), port=self.port, keep=self.keep, listener=reporter)
        if self.output == "json":
            facts = {**outcome.verdict._asdict(), "query_restarts": outcome.query_restarts}
            facts |= {f"ledger_{key}": value for key, value in outcome.ledger._asdict().items()}
            facts |= {"picture": str(outcome.picture), "results": str(outcome.results)}
            print_rows(Rows([facts]), "json", sys.stdout)
        else:
            print_rows(Rows(carrier_rows(outcome.books)), "table", sys.stdout)
            print(f"picture: {outcome.picture}   results: {outcome.results}")
            print(ledger_line(outcome.ledger))
            print(verdict_line(outcome.verdict), flush=True)
        return 0 if outcome.is_clean else FAILED
