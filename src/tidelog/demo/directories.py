"""What the demo leaves behind, and what it does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Directories:
    """What the demo makes below its output directory. Only that is ever removed.

    `results`, `table` with `truncations`, and the pictures stay; `work`, with the nodes' files, Spark's checkpoint,
    their logs and the unpacked flights, is removed at the end, unless it is to be kept or something went wrong.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.results = output / "delays"
        self.table = output / "ledger"
        self.truncations = output / "ledger_truncations"
        self.picture = output / "flights.png"
        self.lineages = output / "lineages.png"
        self.work = output / "work"
        self.is_worth_keeping = False

    def prepare(self) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        self.remove(self.work)
        for written in (self.results, self.table, self.truncations):
            self.remove(written)
        for picture in (self.picture, self.lineages):
            picture.unlink(missing_ok=True)
        self.work.mkdir()

    @staticmethod
    def remove(directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def cleaned_up(self, keep: bool, say: Callable[[str], None]) -> Iterator[None]:
        """Remove `work` in the end, if that is right."""
        try:
            yield
        except Exception:
            self.is_worth_keeping = True
            raise
        finally:
            if self.is_worth_keeping and not keep:
                say(f"files and logs are left in {self.work}")
            if not self.is_worth_keeping and not keep:
                self.remove(self.work)
