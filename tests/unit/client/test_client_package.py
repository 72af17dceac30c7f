"""What `import tidelog` costs, and what it offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

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


def test_the_async_clients_bear_the_names_of_the_blocking_ones() -> None:
    assert set(aio.__all__) <= set(tidelog.__all__)
    for name in aio.__all__:
        blocking, other = getattr(tidelog, name), getattr(aio, name)
        public = {method for method in dir(blocking) if not method.startswith("_")}
        assert public == {method for method in dir(other) if not method.startswith("_")}


def test_importing_the_package_loads_nothing_and_a_client_no_arrow() -> None:
    program = """
import sys
before = set(sys.modules)
import tidelog
loaded = set(sys.modules) - before - {"tidelog", "__future__"}
assert not loaded, loaded
from tidelog import Consumer, Producer, Admin, aio
for heavy in ("pyarrow", "rich", "click", "unittest", "difflib", "email", "tidelog.server", "tidelog.log"):
    assert heavy not in sys.modules, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
