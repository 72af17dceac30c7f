"""Search for requests that hold a node's event loop: `python tests/fuzz/fuzz_slow.py SECONDS [SEED]`.

Requests of every API that a broker serves, whose lists are long: one list of each at first, with values of some kinds;
then what was slowest is changed and tried again (a longer list, another one beside it, other values, another version).
What is measured is how much CPU the node's main thread takes in one turn, as the kernel counts it: between two
looks at its clock, each as soon as a bystander's request is answered. The last lines are the slowest requests found.

A table and no verdict, because a machine under load has slower turns; `STEP_MS_MAX` beyond which it ends with status 1
is far above what a turn may take.
"""

from __future__ import annotations

import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess
from tidelog.server.api.dispatch import advertised
from tidelog.server.transport.listener_roles import BROKER
from tidelog.wire import encode_request
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.schema import FieldSpec, Layout, WireType, layout_of

STEP_MS_MAX = 250.0
LENGTHS = (1, 300, 3_000, 30_000, 250_000)
TOPIC = "slow"
KINDS = ("known", "unknown", "same", "empty")
LEFT_OUT = frozenset({ApiKey.STOP_REPLICA, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER})
BEST_KEPT = 12
TRIES = 3

Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A request: how long its lists are (others have one element), and what its values are.

    Attributes:
        lengths: by the path of a list.
        kind: of names and ids: those of a topic that is there, of none, all the same, or empty.
        number: what numbers are.
    """

    key: ApiKey
    version: int
    lengths: tuple[tuple[Path_, int], ...]
    kind: str
    number: int = 0

    def __str__(self) -> str:
        lists = ", ".join(f"{'.'.join(path)} × {length}" for path, length in self.lengths if length > 1)
        return f"{self.key.name} {self.version}: {lists}; {self.kind} names, numbers {self.number}"


def lists_of(layout: Layout, version: int, path: Path_ = ()) -> Iterator[Path_]:
    for spec in layout.fields:
        if version not in spec.versions or spec.is_tagged_in(version):
            continue
        inner = (*path, spec.name)
        if spec.type.kind == "array":
            yield inner
            element = spec.type.element
            if element is not None and element.layout is not None:
                yield from lists_of(element.layout, version, inner)
        elif spec.type.kind == "struct" and spec.type.layout is not None:
            yield from lists_of(spec.type.layout, version, inner)


class Maker:
    """Makes the messages of candidates."""

    def __init__(self, topic_id: UUID) -> None:
        self._topic_id = topic_id

    def message(self, candidate: Candidate) -> Any:
        return self._struct(layout_of(api(candidate.key).request), candidate, (), 0)

    def _struct(self, layout: Layout, candidate: Candidate, path: Path_, index: int) -> Any:
        values = {
            spec.name: self._value(spec.type, spec, candidate, (*path, spec.name), index)
            for spec in layout.fields
            if candidate.version in spec.versions and not spec.is_tagged_in(candidate.version)
        }
        rest = {spec.name: spec.make_default() for spec in layout.fields if spec.name not in values}
        return layout.cls(**values, **rest)

    def _value(self, wire_type: WireType[Any], spec: FieldSpec, candidate: Candidate, path: Path_, index: int) -> Any:
        if wire_type.kind == "array":
            assert wire_type.element is not None
            length = dict(candidate.lengths).get(path, 1)
            return [self._value(wire_type.element, spec, candidate, path, at) for at in range(length)]
        if wire_type.kind == "struct":
            assert wire_type.layout is not None
            return self._struct(wire_type.layout, candidate, path, index)
        kind = candidate.kind
        if wire_type.kind == "uuid":
            return self._topic_id if kind in ("known", "same") else UUID(int=index if kind == "unknown" else 0)
        if wire_type.kind == "string":
            return {"known": TOPIC, "same": "same", "empty": ""}.get(kind, f"{spec.name}-{index}")
        if wire_type.kind in ("bytes", "records"):
            return bytes(batch_of(b"v")) if kind == "known" else b""
        if wire_type.code == "?":
            return kind == "unknown"
        return index % 4 if "partition" in spec.name or "index" in spec.name else candidate.number


@dataclass
class Found:
    """What a candidate costs.

    Attributes:
        step_ms: CPU of the longest turn while it was answered, the least of several tries.
        size_bytes: of its frame.
    """

    candidate: Candidate
    step_ms: float
    size_bytes: int = 0


@dataclass
class Bystander:
    """Asks again and again, and remembers how much CPU the node's main thread took between two answers at most."""

    node: NodeProcess
    longest_ms: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Bystander:
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _cpu_ms(self) -> float:
        pid = self.node.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6

    def _ask(self) -> None:
        with WireClient(self.node.port, timeout_seconds=120) as client:
            while not self._ended.is_set():
                before_ms = self._cpu_ms()
                client.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
                self.longest_ms = max(self.longest_ms, self._cpu_ms() - before_ms)


def measure(node: NodeProcess, candidate: Candidate, maker: Maker) -> Found | None:
    """None if it cannot be said."""
    try:
        pieces: list[Any] = encode_request(candidate.key, candidate.version, 1, "slow", maker.message(candidate))
        frame = b"".join(pieces)
    except (ValueError, Exception):  # what its version cannot carry
        return None
    least_ms = float("inf")
    for _ in range(TRIES):
        with Bystander(node) as bystander, suppress(OSError):
            bystander.longest_ms = 0.0
            with socket.create_connection(("127.0.0.1", node.port), timeout=20) as stream:
                stream.sendall(frame)
                left = int.from_bytes(stream.recv(4, socket.MSG_WAITALL))
                while left > 0 and (data := stream.recv(min(left, 1 << 20))):
                    left -= len(data)
            time.sleep(0.005)
        least_ms = min(least_ms, bystander.longest_ms)
        if least_ms < 5:
            break
    return Found(candidate, least_ms, len(frame))


def first_ones() -> Iterator[Candidate]:
    for key, _, version in advertised(BROKER):
        if key in LEFT_OUT:
            continue
        for path in lists_of(layout_of(api(key).request), version):
            for kind in KINDS:
                yield Candidate(ApiKey(key), version, ((path, 3_000),), kind)


def changed(candidate: Candidate, rng: random.Random) -> Candidate:
    known = api(candidate.key)
    what = rng.randrange(4)
    if what == 0:
        return replace(candidate, kind=rng.choice(KINDS), number=rng.choice((-1, 0, 1, 1 << 30)))
    if what == 1:
        return replace(candidate, version=rng.randint(known.min_version, known.max_version))
    paths = list(lists_of(layout_of(known.request), candidate.version))
    lengths = dict(candidate.lengths)
    lengths[rng.choice(paths)] = rng.choice(LENGTHS)
    total = 1
    for length in lengths.values():
        total *= length
    return replace(candidate, lengths=tuple(lengths.items())) if total <= 300_000 else candidate


def search(seconds: float, seed: int) -> list[Found]:
    rng = random.Random(seed)
    best: list[Found] = []
    with tempfile.TemporaryDirectory() as directory:
        node = NodeProcess(Path(directory) / "data", config={"auto.create.topics.enable": "false"})
        node.start()
        try:
            with WireClient(node.port) as client:
                client.create_topic(TOPIC, partitions=4)
                described = client.describe_topic(TOPIC)
            maker, ends = Maker(described.topic_id), time.monotonic() + seconds
            todo, seen = list(first_ones()), set()
            rng.shuffle(todo)
            while time.monotonic() < ends:
                candidate = todo.pop() if todo else changed(rng.choice(best).candidate, rng)
                if candidate in seen:
                    continue
                seen.add(candidate)
                found = measure(node, candidate, maker)
                assert node.is_running, f"{candidate}: the node went down\n{node.log[-5_000:]}"
                if found is None:
                    continue
                best = sorted([*best, found], key=lambda one: -one.step_ms)
                alike: dict[ApiKey, int] = {}
                kept = []
                for one in best:  # of one API no more than a few, or nothing else is looked at
                    alike[one.candidate.key] = alike.get(one.candidate.key, 0) + 1
                    if alike[one.candidate.key] <= 2:
                        kept.append(one)
                best = kept[:BEST_KEPT]
            print(f"{len(seen)} requests tried")
        finally:
            node.close()
    return best


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    print(f"seed {seed}")
    best = search(seconds, seed)
    for one in best:
        print(f"{one.step_ms:8.1f} ms  {one.size_bytes:>9} bytes  {one.candidate}")
    assert best
    assert best[0].step_ms <= STEP_MS_MAX, "a request holds the event loop for too long"


if __name__ == "__main__":
    main()
