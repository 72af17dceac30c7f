"""Spark's standalone cluster, from the pip package: a master and workers in processes of their own, on the loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

from support.fixtures.waiting import wait_until
from support.load.spark_pipeline import Settings
from tidelog.cli.ports import free_ports
from tidelog.spark.session import java_environment, worker_python

HOST = "127.0.0.1"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
ANSWER_SECONDS_MAX = 180.0
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SUPPORT = Path(__file__).parents[2]


def spark_environment() -> dict[str, str]:
    """Of every process of Spark here."""
    import pyspark

    path = [str(SUPPORT), str(SUPPORT.parent / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **java_environment(),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{JVM} -Dspark.master.rest.enabled=false -Dspark.ui.enabled=false",
        "PYSPARK_PYTHON": str(worker_python()),
        "PYTHONPATH": ":".join(filter(None, path)),
    }


def _ending_with_us(command: list[str]) -> list[str]:
    setpriv = shutil.which("setpriv")  # where it is missing, a killed test run leaves it behind
    return command if setpriv is None else [setpriv, "--pdeathsig", "KILL", *command]


class SparkStandalone:
    """A master and workers of one core each. Use as a context, which is entered once the master takes applications.

    Args:
        directory: for their logs and what applications leave.
    """

    def __init__(self, directory: Path, *, workers: int = 2) -> None:
        self.directory = directory
        self.worker_count = workers
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkStandalone:
        self.directory.mkdir(parents=True, exist_ok=True)
        port, web, *worker_webs = free_ports(HOST, [None] * (2 + self.worker_count))
        self.url = f"spark://{HOST}:{port}"
        try:
            self._run("master", "master.Master", "--port", str(port), "--webui-port", str(web))
            # A worker that finds no master asks again only many seconds later.
            wait_until(self._has_master, self._logs, seconds=START_SECONDS_MAX)
            for number, worker_web in enumerate(worker_webs, 1):
                work = ["--work-dir", str(self.directory / f"work-{number}"), "--webui-port", str(worker_web)]
                self._run(f"worker-{number}", "worker.Worker", "--cores", "1", "--memory", "1g", *work, self.url)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, name: str, kind: str, *arguments: str) -> None:
        environment = spark_environment()
        script = str(Path(environment["SPARK_HOME"], "bin", "spark-class"))
        command = [script, f"org.apache.spark.deploy.{kind}", "--host", HOST, *arguments]
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    _ending_with_us(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
                )
            )

    def _has_master(self) -> bool:
        assert self._processes[0].poll() is None, self._logs()
        return "New state: ALIVE" in (self.directory / "master.log").read_text(errors="replace")

    def _logs(self) -> str:
        paths = sorted(self.directory.glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-1_500:]}" for path in paths)

    @property
    def executors(self) -> list[int]:
        """The process ids of the executors that the workers run now."""
        workers = {one.pid for one in self._processes[1:]}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in workers and EXECUTOR.encode() in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
            except OSError:
                continue  # it ended meanwhile
        return sorted(found)

    def kill_executor(self) -> None:
        """`kill -9` of one; returns when the workers run as many as before again."""
        wait_until(lambda: len(self.executors) == self.worker_count, self._logs, seconds=START_SECONDS_MAX)
        before = self.executors
        os.kill(before[0], signal.SIGKILL)
        wait_until(
            lambda: before[0] not in (found := self.executors) and len(found) == len(before),
            self._logs,
            seconds=START_SECONDS_MAX,
        )

    def close(self) -> None:
        """Leave nothing running. Workers end the executors that are left; those of a killed one end by themselves."""
        for one in reversed(self._processes):
            one.terminate()
        for one in reversed(self._processes):
            try:
                one.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


class PipelineDriver:
    """The program of `spark_pipeline` in a process of its own. Use as a context.

    Args:
        settings: of the pipeline.
        log_path: what it prints on stderr goes there, after what is there.
    """

    def __init__(self, settings: Settings, log_path: Path) -> None:
        self.settings = settings
        self.log_path = log_path
        self._answers: Queue[str] = Queue()
        self._process: subprocess.Popen[str] | None = None
        self._reading: threading.Thread | None = None

    def __enter__(self) -> PipelineDriver:
        command = [sys.executable, "-m", "support.load.spark_pipeline", self.settings.to_json()]
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                _ending_with_us(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=spark_environment(),
                cwd=self.settings.folder,
                text=True,
                start_new_session=True,  # so that it is killed together with its JVM
            )
        assert self._process.stdout is not None
        self._reading = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reading.start()
        try:
            assert self._answer("its start") == "ready"
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, what: str) -> Any:
        """Have it do what the program's text lists, and return its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._answer(what)

    def kill(self) -> None:
        """`kill -9` of the driver: of Python and of the JVM."""
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Have it end, if it has not."""
        assert self._process is not None
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.close()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        with suppress(OSError):
            self._process.stdin.close()
        if self._reading is not None:
            self._reading.join()

    def _answer(self, what: str) -> Any:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                return json.loads(self._answers.get(timeout=0.2))
            except Empty:
                assert self._process is not None
                if self._process.poll() is not None:
                    break
        raise AssertionError(f"the driver did not answer to {what}: {self.log_path.read_text()[-4_000:]}")

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._answers.put(line)
