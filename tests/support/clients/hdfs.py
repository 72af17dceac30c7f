"""HDFS: a name node and a data node of Hadoop, in processes of their own, as `make peers` fetched it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.clients.kafka_peer import PEERS
from support.fixtures.waiting import wait_until
from tidelog.cli.ports import free_ports

HDFS_JARS = PEERS / "hdfs"
START_SECONDS_MAX = 180.0
FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SERVER = "org.apache.hadoop.hdfs.server"


def missing_hdfs() -> str | None:
    """Why HDFS cannot be run here, or None when it can."""
    if not (HDFS_JARS / ".fetched").exists():
        return f"{HDFS_JARS.relative_to(PEERS.parent)} is not there: `make peers` fetches it"
    if shutil.which("java") is None:
        return "there is no java on the PATH"
    return None


@contextmanager
def running_hdfs(folder: Path) -> Iterator[str]:
    """An empty file system on the loopback. Gives its URI."""
    import pyspark

    name_port, web_port, *data_ports = free_ports("127.0.0.1", [None] * 5)
    conf = folder / "conf"
    conf.mkdir(parents=True)
    uri = f"hdfs://127.0.0.1:{name_port}"
    _write(conf / "core-site.xml", {"fs.defaultFS": uri, "hadoop.tmp.dir": str(folder / "data")})
    of_data = dict(zip(("address", "http.address", "ipc.address"), data_ports, strict=True))
    _write(
        conf / "hdfs-site.xml",
        {
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.http-address": f"127.0.0.1:{web_port}",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.datanode.hostname": "127.0.0.1",
            **{f"dfs.datanode.{name}": f"127.0.0.1:{port}" for name, port in of_data.items()},
        },
    )
    jars = Path(pyspark.__file__).parent / "jars"
    path = ":".join([str(conf), f"{HDFS_JARS}/*", *map(str, sorted(jars.glob("hadoop-client-*.jar")))])
    path = ":".join(
        [path, *(str(jar) for name in ("slf4j-api-*", "jcl-over-*", "log4j-*") for jar in sorted(jars.glob(name)))]
    )

    def command(*arguments: str) -> list[str]:
        tool = shutil.which("setpriv")  # where it is missing, a killed test run leaves it behind
        return [*([tool, "--pdeathsig", "KILL"] if tool else []), "java", *FLAGS, "-cp", path, *arguments]

    def live_nodes() -> bool:
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/{query}", timeout=10) as answer:
                beans = json.load(answer)["beans"]
        except OSError:
            return False
        return any(bean.get("NumLiveDataNodes") == 1 and bean.get("FSState") == "Operational" for bean in beans)

    name_node = f"{SERVER}.namenode.NameNode"
    subprocess.run(command(name_node, "-format", "-force"), check=True, capture_output=True, timeout=START_SECONDS_MAX)
    with ExitStack() as stack:
        for program in (name_node, f"{SERVER}.datanode.DataNode"):
            log = stack.enter_context((folder / f"{program.rpartition('.')[2]}.log").open("wb"))
            node = subprocess.Popen(command(program), stdout=log, stderr=log)
            stack.callback(node.wait)
            stack.callback(node.kill)
        wait_until(live_nodes, "HDFS has a data node", seconds=START_SECONDS_MAX)
        yield uri


def _write(file: Path, properties: Mapping[str, str]) -> None:
    entries = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items())
    file.write_text(f"<configuration>{''.join(entries)}</configuration>")
