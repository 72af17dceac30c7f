"""Run every benchmark, one after the other, and show each figure beside its peer.

    python bench/run.py                    all of them
    python bench/run.py kernel produce     those whose names hold one of the words
    python bench/run.py --json             the JSON lines alone, as they come
    python bench/run.py --markdown         the rows of the table in docs/performance.md

Each `bench/bench_*.py` prints one JSON line per figure: name, value, unit, peer, peer_value, ratio; and `target` and
`met` where there is one; or one with `skipped`, where what it measures is missing. A benchmark that fails is shown as
failed, and the rest still runs; the exit status is 1 then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SECONDS_MAX = 1_200
COLUMNS = ("name", "value", "unit", "target", "met", "peer", "peer_value", "ratio")
FORMATS = ("--json", "--markdown")


def main(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    words = [word for word in arguments if word not in FORMATS]
    files = [path for path in sorted(HERE.glob("bench_*.py")) if not words or any(word in path.name for word in words)]
    if not files:
        print(f"error: no benchmark is named like {' or '.join(words)}; see bench/", file=sys.stderr)
        return 2
    figures: list[dict[str, object]] = []
    failed = []
    for number, path in enumerate(files, start=1):
        print(f"[{number}/{len(files)}] {path.name}", file=sys.stderr, flush=True)
        try:
            found = figures_of(path)
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"error: {path.name}: {error}", file=sys.stderr)
            failed.append(path.name)
            continue
        if "skipped" in found[0]:
            print(f"skipped: {found[0]['skipped']}", file=sys.stderr)
            continue
        for figure in found:
            figure["script"] = path.name
            if as_json:
                print(json.dumps(figure), flush=True)
        figures += found
    if "--markdown" in arguments:
        print_markdown(figures)
    elif not as_json:
        print_table(figures)
    if failed:
        print(f"error: {', '.join(failed)} failed, as said above", file=sys.stderr)
    return 1 if failed else 0


def figures_of(path: Path) -> list[dict[str, object]]:
    """Run one benchmark; its stderr is ours.

    Raises:
        SubprocessError: it failed, or took longer than SECONDS_MAX.
        ValueError: it printed no figure, or one without a name, a value and a unit.
    """
    ran = subprocess.run([sys.executable, str(path)], stdout=subprocess.PIPE, check=True, timeout=SECONDS_MAX)
    figures = [json.loads(line) for line in ran.stdout.decode().splitlines() if line.startswith("{")]
    if figures and "skipped" in figures[0]:
        return figures
    if not figures or not all({"name", "value", "unit"} <= figure.keys() for figure in figures):
        raise ValueError(f"printed no JSON line with name, value and unit: {ran.stdout.decode()[-300:]!r}")
    return figures


def print_table(figures: list[dict[str, object]]) -> None:
    lines = [COLUMNS, *(tuple(shown(figure.get(column)) for column in COLUMNS) for figure in figures)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def print_markdown(figures: list[dict[str, object]]) -> None:
    for figure in figures:
        target = (
            "" if figure.get("target") is None else f"{figure['target']}{'' if figure.get('met') else ' **missed**'}"
        )
        peer = "" if figure.get("peer") is None else f"{figure['peer']}: {shown(figure['peer_value'])}"
        ratio = "" if figure.get("ratio") is None else shown(figure["ratio"])
        cells = (
            figure["name"],
            f"{shown(figure['value'])} {figure['unit']}",
            target,
            peer,
            ratio,
            f"`{figure['script']}`",
        )
        print("| " + " | ".join(str(cell) for cell in cells) + " |")


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
