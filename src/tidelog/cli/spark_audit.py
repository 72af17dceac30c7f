"""`tidelog spark audit`: whether a table holds what the log holds."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import MissingExtraError, TidelogError
from tidelog.cli.command import (
    KeyValue,
    UsageError,
    argument,
    bootstrap_option,
    config_option,
    log_level_option,
    option,
    output_option,
    start_logging,
)
from tidelog.cli.output import Rows, print_rows
from tidelog.cli.progress import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.table_audit import AuditReport, Derive

DIFFERENT = 3
"""Exit status: rows differ. What could not be audited at all is 1, as everywhere."""
LOOK_SECONDS = 0.5
COLUMNS = (
    "topic", "partition", "leader_epoch", "expected", "found", "missing", "duplicated", "phantom", "changed",
    "unverifiable", "first_offset",
)  # fmt: skip


class AuditFailedError(TidelogError):
    """Spark gave up. Carries its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTable:
    """Derive the rows of a table anew from the log, and compare.

    TABLE is a Delta Lake table that tidelog.spark.healing_writer writes. The log is read as far as the last batch that
    the table holds, by a Spark job of its own; the query may run meanwhile.

    Printed are, by partition and leader epoch, the rows that are missing, duplicated, phantom (of a record that the log
    does not hold) or changed. Rows of records that retention or compaction removed cannot be compared any more; they
    are counted as unverifiable. Exit status 0: nothing differs; 3: something does; 1: the audit failed.

    Say by --sql, --sql-file or --derive what the query does with records. The SQL is a SELECT from `records`, the
    function takes a DataFrame and returns one. It must give the same rows each time.

    Needs the extra `spark-delta`, and Spark: pip install 'tidelog[spark-local,spark-delta]'

    Examples:

        tidelog spark audit /data/orders --checkpoint /data/checkpoint --sql-file orders.sql
        tidelog spark audit /data/orders --checkpoint /data/checkpoint --derive pipeline:orders --master spark://host:7077
    """

    table: str = argument(metavar="TABLE")
    checkpoint: str = option("--checkpoint", required=True, metavar="PATH", help="The query's checkpointLocation.")
    sql: str | None = option("--sql", default=None, metavar="SELECT", help="A SELECT from records.")
    sql_file: str | None = option("--sql-file", default=None, metavar="FILE", help="The same, in a file.")
    derive: str | None = option(
        "--derive", default=None, metavar="MODULE:FUNCTION", help="A function from DataFrame to DataFrame."
    )
    read_option: Sequence[tuple[str, str]] = option(
        "--option", type=KeyValue(), multiple=True, metavar="KEY=VALUE", help="Of the query's source. May be repeated."
    )
    storage_option: Sequence[tuple[str, str]] = option(
        "--storage-option",
        type=KeyValue(),
        multiple=True,
        metavar="KEY=VALUE",
        help="Of deltalake, as for s3://.",
    )
    truncations: str | None = option(
        "--truncations", default=None, metavar="PATH", help="The table of truncations; by default TABLE_truncations."
    )
    master: str | None = option(
        "--master", default=None, metavar="URL", help="Of Spark; by default local[*], or what spark-submit says."
    )
    remote: str | None = option(
        "--remote",
        default=None,
        metavar="URL",
        help="Of a Spark Connect server (sc://host:port), in place of --master.",
    )
    config: Sequence[tuple[str, str]] = config_option("Of Spark. May be repeated.")
    bootstrap: str = bootstrap_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> int:
        if self.master is not None and self.remote is not None:
            raise UsageError("--master or --remote: a session has one of them")
        derive = self._derived()
        start_logging(self.log_level)
        from tidelog.spark.table_audit import audit

        with Reporter() as reporter:
            reporter.say("starting Spark ...")
            spark = _session(self.master, self.remote, dict(self.config))
            try:
                options = {"kafka.bootstrap.servers": self.bootstrap, **dict(self.read_option)}
                with _progress_of(spark, reporter), _spark_errors_in_one_line():
                    report = audit(
                        spark,
                        self.table,
                        self.checkpoint,
                        derive,
                        options,
                        truncations=self.truncations,
                        storage_options=dict(self.storage_option) or None,
                    )
            finally:
                spark.stop()
        self._print(report)
        return 0 if report.is_clean else DIFFERENT

    def _derived(self) -> Derive:
        given = [one for one in (self.sql, self.sql_file, self.derive) if one is not None]
        if len(given) != 1:
            raise UsageError("say by exactly one of --sql, --sql-file and --derive what the query does with records")
        if self.sql is not None:
            return self.sql
        if self.sql_file is not None:
            return Path(self.sql_file).read_text(encoding="utf-8").strip().rstrip(";")
        return _function(self.derive or "")

    def _print(self, report: AuditReport) -> None:
        rows = [asdict(line) for line in report.lines]
        print_rows(Rows(rows, columns=None if self.output == "json" else COLUMNS), self.output, sys.stdout)
        verdict = "nothing differs" if report.is_clean else f"{report.differences:,} rows DIFFER"
        print(
            f"{report.matching:,} rows match, {verdict}, {report.unverifiable:,} unverifiable: table version "
            f"{report.table_version}, batch {report.batch_id} of query {report.query_id}",
            file=sys.stderr,
        )


def _function(text: str) -> Callable[..., Any]:
    """The function that `module:function` names; the current folder is looked into as well.

    Raises:
        UsageError: there is none.
    """
    from importlib import import_module

    module, _, name = text.partition(":")
    sys.path.insert(0, "")
    try:
        loaded = import_module(module)
        found = getattr(loaded, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--derive {text}: MODULE:FUNCTION is expected ({error})") from None
    finally:
        sys.path.remove("")
    if not callable(found):
        raise UsageError(f"--derive {text}: {name} is no function")
    # Executors need not have the module.
    with suppress(ImportError):
        from pyspark.cloudpickle import register_pickle_by_value

        register_pickle_by_value(loaded)  # type: ignore[no-untyped-call]
    function: Callable[..., Any] = found
    return function


def _session(master: str | None, remote: str | None, settings: dict[str, str]) -> SparkSession:
    """Spark on this machine, unless something else is asked for."""
    import os

    said_elsewhere = "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ
    if (
        master is None
        and remote is None
        and not said_elsewhere
        and not settings.keys() & {"spark.master", "spark.remote"}
    ):
        from tidelog.spark.session import local_session

        defaults = {"spark.log.level": "ERROR", "spark.driver.memory": "1g"}
        return local_session("tidelog spark audit", cores=os.cpu_count() or 1, settings={**defaults, **settings})
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("tidelog spark audit", "spark-local") from None
    from tidelog.spark.session import CONNECT_ADDRESS, LOOPBACK, java_environment

    builder = SparkSession.builder.appName("tidelog spark audit")
    if remote is not None:
        builder = builder.remote(remote)
    else:
        os.environ.update(java_environment())
    if (remote or master or "").startswith("local"):  # Spark's own default is every address of this machine
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        settings = {CONNECT_ADDRESS: LOOPBACK, **settings}
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with warnings.catch_warnings():
            # Of a server that is started here, which has it by then.
            warnings.filterwarnings("ignore", f"Failed to set {CONNECT_ADDRESS}")
            spark = builder.getOrCreate()
    except ImportError:  # of grpc and the like
        raise MissingExtraError("tidelog spark audit through Spark Connect", "spark-connect") from None
    if _is_remote(spark):
        from tidelog.spark import register

        register(spark)
    return spark


def _is_remote(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, which has no context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def _spark_errors_in_one_line() -> Iterator[None]:
    """Say what Spark says without its tracebacks: what failed in an executor stands at the end of them."""
    from pyspark.errors import PySparkException, PythonException

    try:
        yield
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[-1 if isinstance(error, PythonException) else 0] if lines else type(error).__name__
        raise AuditFailedError(f"Spark could not do the audit: {said}") from error


@contextmanager
def _progress_of(spark: SparkSession, reporter: Reporter) -> Iterator[None]:
    """Report how many tasks of Spark's stages are done, as long as the block lasts."""
    if _is_remote(spark):
        with _progress_of_remote(spark, reporter):
            yield
        return
    tracker = spark.sparkContext.statusTracker()
    is_over = threading.Event()

    def look() -> None:
        stage: int | None = None
        while not is_over.wait(LOOK_SECONDS):
            active = sorted(tracker.getActiveStageIds())
            info = tracker.getStageInfo(active[0]) if active else None
            if info is None or info.numTasks == 0:
                continue
            if info.stageId != stage:
                stage = info.stageId
                reporter.begin(f"stage {stage} of Spark", info.numTasks)
            reporter.advance(info.numCompletedTasks)

    thread = threading.Thread(target=look, name="tidelog-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _progress_of_remote(spark: SparkSession, reporter: Reporter) -> Iterator[None]:
    """The same, as a server of Spark Connect tells it."""
    stage: int | None = None

    def on_progress(stages: Sequence[Any] | None, **_: object) -> None:
        nonlocal stage
        active = next((one for one in stages or () if not one.done and one.num_tasks), None)
        if active is None:
            return
        if active.stage_id != stage:
            stage = active.stage_id
            reporter.begin(f"stage {stage} of Spark", active.num_tasks)
        reporter.advance(active.num_completed_tasks)

    handler: Any = on_progress  # it need not be the class that is asked for
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
