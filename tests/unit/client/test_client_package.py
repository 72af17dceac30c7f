"""What `import tidelog` costs, and what it offers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import aio

PACKAGE = Path(tidelog.__file__)


def test_every_name_is_there_and_typed() -> None:
    imported = set()
    for node in ast.walk(ast.parse(PACKAGE.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tidelog."):
            imported |= {alias.name for alias in node.names}
    assert imported | {"__version__"} == set(tidelog.__all__)
    for name in tidelog.__all__:
        assert getattr(tidelog, name) is not None
    assert set(tidelog.__all__) <= set(dir(tidelog))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tidelog' has no attribute 'Konsumer'"):
        tidelog.Konsumer  # noqa: B018


TOLD_OTHERWISE = {
    "Factory.admin",
    "Factory.consumer",
    "Factory.producer",
    "Producer.resume_transaction",
    "Producer.send",
    "Producer.transaction",
}
"""What they return differs, and so does the text about it."""
TWINS = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__"}


def public(cls: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("name", aio.__all__)
def test_an_async_client_offers_what_the_blocking_one_does(name: str) -> None:
    blocking, other = getattr(tidelog, name), getattr(aio, name)
    assert public(blocking).keys() == public(other).keys()
    for one, twin in TWINS.items():
        assert hasattr(blocking, one) == hasattr(other, twin), f"{name}.{one}"
    for method, of_blocking in public(blocking).items():
        of_other = public(other)[method]
        assert type(of_blocking) is type(of_other), f"{name}.{method}"
        if callable(of_blocking):
            ours, theirs = inspect.signature(of_blocking), inspect.signature(of_other)
            assert ours.parameters == theirs.parameters, f"{name}.{method}"
            if f"{name}.{method}" not in TOLD_OTHERWISE:
                assert ours.return_annotation == theirs.return_annotation.removeprefix("Async"), f"{name}.{method}"
        if f"{name}.{method}" not in TOLD_OTHERWISE:
            assert inspect.getdoc(of_blocking) == inspect.getdoc(of_other), f"{name}.{method}"
        assert inspect.getdoc(of_blocking), f"{name}.{method}"


def test_importing_the_package_loads_nothing_and_a_client_no_arrow() -> None:
    program = """
import sys
before = set(sys.modules)
import tidelog
loaded = set(sys.modules) - before - {"tidelog", "__future__"}
assert not loaded, loaded
from tidelog import Consumer
for late in ("asyncio", "datetime", "json", "logging", "ssl", "tidelog.client.cluster", "tidelog.records"):
    assert late not in set(sys.modules) - before, late  # the first consumer loads them
from tidelog import Producer, Admin, aio
for heavy in ("pyarrow", "rich", "click", "unittest", "difflib", "email", "hmac", "tempfile", "tidelog.server",
              "tidelog.log", "tidelog.io.tls", "tidelog.security", "tidelog.net.security", "tidelog.client.security"):
    assert heavy not in sys.modules, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
