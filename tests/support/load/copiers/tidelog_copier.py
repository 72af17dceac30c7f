"""Tidelog's own clients, as `examples/exactly_once_copy.py` uses them."""

from __future__ import annotations

import runpy
from pathlib import Path

from support.load.copiers.told import listen

EXAMPLE = Path(__file__).parents[4] / "examples" / "exactly_once_copy.py"


def main() -> None:
    told = listen()
    runpy.run_path(str(EXAMPLE))["copy"](told.bootstrap, told.source, told.target, told.name)


if __name__ == "__main__":
    main()
