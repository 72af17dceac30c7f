"""Feed damaged messages to both codecs: `python tests/fuzz/fuzz_codecs.py SECONDS [SEED]`.

Messages of every kind and version (requests, responses, records of the metadata log and of coordinators, what groups
and principals are written as) are damaged in a few places, and read by the compiled kernel and by the generated code.
They agree in what they read, or in the error. What was read is damaged too, in the values of its fields, and is written
by both. Behind the bytes lies memory that nobody may read.
"""

from __future__ import annotations

import pkgutil
import random
import sys
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from importlib import import_module
from typing import Any
from uuid import UUID

from fuzz.fuzz_requests import damage
from support.clients.wire_samples import minimal, sample
from support.fixtures.codec_twins import GuardedMemory, agreed, agreed_pieces
from tidelog.wire import encode
from tidelog.wire.primitives import uvarint
from tidelog.wire.schema import Layout, layout_of

PACKAGES = ("tidelog.wire.messages", "tidelog.metadata.records", "tidelog.coordinator", "tidelog.security")
SIZE_BYTES_MAX = 1 << 16
TAGS_OF_NOTE = (0, 1, 2, 3, 10_000, 0xFFFF_FFFF)

Case = tuple[type[Any], int, bytes]
"""(class, version, valid bytes)."""


def declared() -> list[type[Any]]:
    """Every class that is a message, in an order that does not depend on what was imported before."""
    found = {}
    for package in PACKAGES:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            for value in vars(import_module(module.name)).values():
                layout = getattr(value, "__layout__", None)
                if isinstance(layout, Layout) and layout.versions and isinstance(value, type):
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return [found[name] for name in sorted(found)]


def valid_messages() -> list[Case]:
    """Each message in each version, once with all of its fields set, and once with as few as may be."""
    return [
        (cls, version, encode(make(cls, version), version))
        for cls in declared()
        for version in layout_of(cls).versions
        for make in (sample, minimal)
    ]


# Bytes.


def _tag(rng: random.Random, raw: bytearray, _: list[bytes]) -> None:
    """Tagged fields where there are none, or more of them: unknown ones, and those that come twice."""
    tags = sorted(rng.choice(TAGS_OF_NOTE) for _ in range(rng.choice((1, 1, 2, 3, 33))))
    fields = b"".join(uvarint(tag) + uvarint(size) + rng.randbytes(size) for tag in tags for size in [rng.randrange(4)])
    at = rng.randrange(len(raw) + 1)
    raw[at : at + rng.choice((0, 1))] = uvarint(len(tags)) + fields


def _count(rng: random.Random, raw: bytearray, _: list[bytes]) -> None:
    """A length or a count that is larger than what follows it, or null."""
    at = rng.randrange(len(raw) + 1)
    size = rng.choice((-(1 << 31), -2, -1, 0, 1, 0x7FFF, 0x8000, 1 << 20, 0x7FFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFF))
    written = (
        lambda: uvarint(size & 0xFFFF_FFFF),
        lambda: (size & 0xFFFF_FFFF).to_bytes(4),
        lambda: (size & 0xFFFF).to_bytes(2),
    )
    value = rng.choice(written)()
    raw[at : at + len(value)] = value


def _text(rng: random.Random, raw: bytearray, _: list[bytes]) -> None:
    """What is no UTF-8, or almost: surrogates, overlong forms, a character that is cut short."""
    at = rng.randrange(len(raw) + 1)
    value = rng.choice((b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98\x80"))
    raw[at : at + len(value)] = value


def damaged(rng: random.Random, raw: bytes, others: list[bytes]) -> bytes:
    """With some damages; a few have none."""
    changed = bytearray(raw)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        own = rng.random() < 0.5 or not changed
        (rng.choice((_tag, _count, _text)) if own else damage)(rng, changed, others)
    return bytes(changed[:SIZE_BYTES_MAX])


# Values.


class Number(IntEnum):
    """One that is no plain int."""

    FIVE = 5


class Text(str):
    """One that is no plain str."""

    __slots__ = ()


class List(list[Any]):
    """One that is no plain list."""


ODDITIES: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: None,
    lambda rng: rng.choice((True, False)),
    lambda rng: rng.choice((0, -1, 1 << 7, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63, 1 << 64)) - rng.randrange(2),
    lambda rng: rng.choice((Number.FIVE, Text("text"), List([1]), ("a", "b"), b"", bytearray(b"x"), memoryview(b"xy"))),
    lambda rng: rng.choice((0.0, -0.0, 2.5, float("inf"), float("nan"))),
    lambda rng: rng.choice(
        ("", "x", "ü" * rng.choice((1, 63, 64, 200)), "\ud800", "x" * 127, "x" * 32_768, "ü" * 20_000)
    ),
    lambda rng: rng.choice(([], [None], [1, 2], ["x"], [[]], [b""], [5] * 200)),
    lambda rng: rng.choice((UUID(int=0), UUID(int=(1 << 128) - 1), object())),
)


def spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """(what holds it, its name or index) of every value in a message."""
    layout = getattr(value, "__layout__", None)
    names = [spec.name for spec in layout.fields] if layout is not None else []
    if isinstance(value, list):
        names = list(range(len(value)))
    for name in names:
        inner = value[name] if isinstance(value, list) else getattr(value, name)
        yield value, name
        yield from spots(inner)


def disturb(rng: random.Random, message: Any) -> None:
    """Give one of the fields, or one of the elements, an odd value, or none."""
    owner, name = rng.choice(list(spots(message)) or [(None, None)])
    if owner is None:
        return
    if isinstance(owner, list):
        owner[name] = rng.choice(ODDITIES)(rng)
    elif rng.random() < 0.03:
        delattr(owner, name)
    else:
        setattr(owner, name, rng.choice(ODDITIES)(rng))


def main(seconds: float, seed: int) -> int:
    """Damage, read and write for that long; return how many messages were read.

    Raises:
        AssertionError: a finding; it shows the message, the version, the bytes as hex, and the seed.
    """
    rng = random.Random(seed)
    memory = GuardedMemory(SIZE_BYTES_MAX + 16)
    cases = valid_messages()
    others = [raw for _, _, raw in cases if raw]
    rng.shuffle(cases)
    deadline = time.monotonic() + seconds
    count = 0
    while time.monotonic() < deadline:
        cls, version, valid = cases[count % len(cases)]
        raw = damaged(rng, valid, others)
        position = rng.choice((0, 0, 0, 5))
        try:
            found, _ = agreed(
                cls,
                memory.view(bytes(position) + raw),
                version,
                position=position,
                ignores_trailing_bytes=rng.random() < 0.5,
                elements_max=rng.choice((2, 20, 1 << 18)),
            )
            if not isinstance(found, type):
                disturb(rng, found)
                agreed_pieces(found, version)
        except Exception as error:
            raise AssertionError(f"seed {seed}, message {count}: {cls.__name__} v{version}: {raw.hex()}") from error
        count += 1
    return count


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    run_seconds = given[0] if given else 10.0
    run_seed = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(1 << 32)
    print(f"{main(run_seconds, run_seed)} messages, seed {run_seed}: nothing found")
