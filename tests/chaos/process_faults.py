"""What happens to processes: killed, stopped, frozen, started anew in turn."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.fault import Fault, Hurt, Stage


def kill(stage: Stage) -> Iterator[str]:
    """One node, with `kill -9`."""
    node = stage.victim()
    node.kill()
    yield str(node)
    node.start()


def kill_starting(stage: Stage) -> Iterator[str]:
    """One node, and again while it comes back, before it serves or just after."""
    node = stage.victim()
    node.kill()
    for _ in range(stage.dice.randrange(1, 5)):
        node.start_soon()
        yield f"{node} while it starts"
        node.kill()
    node.start()


def kill_majority(stage: Stage) -> Iterator[str]:
    """More than half of the nodes: nothing is decided until some are back."""
    nodes = list(stage.cluster.nodes.values())
    hit = stage.dice.sample(nodes, len(nodes) // 2 + 1)
    for node in hit:
        node.kill()
    yield ", ".join(map(str, hit))
    for node in hit:
        node.start_soon()
    for node in hit:
        node.wait_until_serving()


def kill_all(stage: Stage) -> Iterator[str]:
    """Every node at once."""
    stage.cluster.kill()
    yield "all"
    stage.cluster.start()


def pause(stage: Stage) -> Iterator[str]:
    """SIGSTOP: it says nothing, and what it has open stays open."""
    node = stage.victim()
    node.pause()
    try:
        yield str(node)
    finally:
        node.resume()


def pause_all(stage: Stage) -> Iterator[str]:
    """SIGSTOP of every node, as when a host is moved: everybody's time is over at once when they go on."""
    nodes = stage.cluster.running
    for node in nodes:
        node.pause()
    try:
        yield "all"
    finally:
        for node in nodes:
            node.resume()


def stop(stage: Stage) -> Iterator[str]:
    """One node, cleanly."""
    node = stage.victim()
    node.stop()
    yield str(node)
    node.start()


def rolling_restart(stage: Stage) -> Iterator[str]:
    """One node after the other, cleanly; each has caught up before the next one goes."""
    for node in list(stage.cluster.nodes.values()):
        node.stop()
        yield f"{node} in its turn"
        node.start()
        stage.until_in_sync()


def lose_disk(stage: Stage) -> Iterator[str]:
    """One node loses its files, and comes back with an empty directory after the others went on without it.

    They have to know it before it comes back: a voter that comes back empty has forgotten whom it voted for.
    """
    node = stage.victim()
    node.kill()
    node.lose_disk()
    stage.go_on()
    yield str(node)
    node.start()


FAULTS = (
    Fault(kind="kill -9", strike=kill, hurts=Hurt.PROCESS, seconds=(0.0, 8.0), is_restart=True),
    Fault(kind="kill -9 while starting", strike=kill_starting, hurts=Hurt.PROCESS, seconds=(0.0, 1.5), is_restart=True),
    Fault(kind="kill -9 of a majority", strike=kill_majority, hurts=Hurt.PROCESS, seconds=(0.0, 3.0), is_restart=True),
    Fault(kind="kill -9 of all", strike=kill_all, hurts=Hurt.PROCESS, seconds=(0.0, 2.0), is_restart=True),
    Fault(kind="SIGSTOP", strike=pause, hurts=Hurt.PROCESS, seconds=(1.0, 15.0)),
    Fault(kind="SIGSTOP of all", strike=pause_all, hurts=Hurt.PROCESS, seconds=(1.0, 15.0)),
    Fault(kind="clean stop", strike=stop, hurts=Hurt.PROCESS, seconds=(0.0, 5.0), is_restart=True),
    Fault(kind="rolling restart", strike=rolling_restart, hurts=Hurt.PROCESS, seconds=(0.0, 2.0), is_restart=True),
    Fault(kind="lost disk", strike=lose_disk, hurts=Hurt.DISK, seconds=(0.0, 3.0), is_alone=True, is_restart=True),
)
