"""Makes CHANGELOG.md of the fragments in this folder.

python changes/gather.py              the fragments, as the part that is not released yet
python changes/gather.py 0.2.0        the same as the part of a release, dated today; its fragments are deleted
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
CHANGELOG = HERE.parent / "CHANGELOG.md"
KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed", "faster": "Faster"}
UNRELEASED = "Not released yet"
PREFACE = """# Changelog

`changes/gather.py` makes this page of the fragments in `changes/`.
"""


def fragments() -> list[tuple[str, Path]]:
    """(kind, file) of each, in the order of the kinds, then of the names."""
    found = []
    for path in HERE.glob("*.md"):
        if path.name != "README.md":
            kind = path.suffixes[0].removeprefix(".")
            if kind not in KINDS:
                raise SystemExit(f"{path}: {kind!r} is none of {', '.join(KINDS)}")
            found.append((kind, path))
    order = list(KINDS)
    return sorted(found, key=lambda one: (order.index(one[0]), one[1].name))


def part(title: str) -> str:
    """What the fragments say, under a title."""
    lines, last = [f"## {title}", ""], None
    for kind, path in fragments():
        if kind != last:
            lines += [f"### {KINDS[kind]}", ""]
            last = kind
        text = path.read_text().replace("](../", "](")  # the changelog lies one folder above the fragments
        first, *more = text.strip().splitlines()
        lines += [f"- {first}", *(f"  {line}".rstrip() for line in more), ""]
    return "\n".join(lines)


def changelog(before: str, title: str) -> str:
    """The whole page: the part of these fragments, in the place of an unreleased one, above the releases."""
    releases = re.split(r"^(?=## )", before, flags=re.MULTILINE)[1:]
    kept = [one.rstrip() + "\n" for one in releases if not one.startswith(f"## {UNRELEASED}\n")]
    return "\n".join([PREFACE, part(title), *kept])


def main(version: str | None) -> None:
    if version is not None and re.fullmatch(r"\d+\.\d+\.\d+\S*", version) is None:
        raise SystemExit(f"{version!r} is no version, such as 0.2.0")
    before = CHANGELOG.read_text() if CHANGELOG.exists() else ""
    title = UNRELEASED if version is None else f"{version} ({datetime.now(UTC):%Y-%m-%d})"
    CHANGELOG.write_text(changelog(before, title))
    if version is not None:
        for _, path in fragments():
            path.unlink()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
