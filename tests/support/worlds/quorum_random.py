"""Random lives of small quorums: crashes, losses of power, partitions, closed connections, snapshots, clean stops."""

from __future__ import annotations

from random import Random

from support.worlds.quorum_world import Conditions, Machine, QuorumWorld
from tidelog.base.errors import KafkaError
from tidelog.quorum import Voter, decide_add_voter, decide_remove_voter, decide_voters_in_log

STEPS = 120
CHANGES = 0.2
"""How likely it is, at each step, that somebody asks to add or to remove a voter."""

LOSSES = 0.02
"""How likely it is, at each step, that a voter loses its log, or what it voted."""

PAUSES_MS = (0, 1, 5, 20, 200, 1_000, 3_000)


def play(
    seed: int,
    steps: int = STEPS,
    *,
    has_directories: bool = False,
    is_configured: bool = False,
    copies_nodes: bool = False,
) -> QuorumWorld:
    """One life. It ends well: all come back, one leads, and a last record gets everywhere.

    Args:
        has_directories: voters are added and removed as well.
        is_configured: so they are, once the voters of the settings were put into the log.
        copies_nodes: after every event a copy of the node goes on in its place.
    """
    rng = Random(seed)
    conditions = Conditions(
        delay_ms=(0, rng.choice([1, 5, 40])),
        sync_ms=(0, rng.choice([0, 5, 60])),
        drop=rng.choice([0.0, 0.0, 0.02, 0.2]),
        duplicate=rng.choice([0.0, 0.1]),
        sends_high_watermark=rng.random() < 0.8,
        copies_nodes=copies_nodes,
    )
    voters, observers = rng.choice([1, 3, 3, 3, 5]), rng.choice([0, 0, 1, 2])
    world = QuorumWorld(
        voters,
        observers,
        seed=seed,
        conditions=conditions,
        has_directories=has_directories,
        is_configured=is_configured,
    )
    world.start()
    for step in range(steps):
        if (has_directories or is_configured) and rng.random() < CHANGES:
            _change_voters(world, rng)
        _happen(world, rng, step)
        world.run(rng.choice(PAUSES_MS))
    world.heal()
    conditions.drop = 0.0
    for machine in world.machines.values():
        if machine.node is not None:
            machine.crash()
        machine.start()
    world.run_until(lambda: world.active)
    active = world.active
    assert active is not None
    last = active.propose("last")
    world.run_until(lambda: all(machine.high_watermark > last for machine in world.machines.values()))
    world.check_logs()
    return world


def _happen(world: QuorumWorld, rng: Random, step: int) -> None:
    machines = list(world.machines.values())
    up = [machine for machine in machines if machine.node is not None]
    down = [machine for machine in machines if machine.node is None]
    drawn = rng.random()
    if drawn < 0.35:
        leading = [one for one in up if one.leads and one.has_opened]
        if leading:
            rng.choice(leading).propose(f"m{step}")
    elif drawn < 0.43 and up:
        world.crash(rng.choice(up).id, is_noticed=rng.random() < 0.7, loses_power=rng.random() < 0.7)
    elif drawn < 0.53 and down:
        rng.choice(down).start()
    elif drawn < 0.57:
        world.isolate(rng.choice(machines).id)
    elif drawn < 0.60 and len(machines) > 1:
        one, other = rng.sample(machines, 2)
        world.conditions.cut.add((one.id, other.id))
    elif drawn < 0.66:
        world.heal()
    elif drawn < 0.70 and len(up) > 1:
        one, other = rng.sample(up, 2)
        world.close(one, other.id)
    elif drawn < 0.73 and up:
        _resign(world, rng.choice(up))
    elif drawn < 0.76:
        known = [one for one in up if one.high_watermark > one.log_start]
        if known:
            one = rng.choice(known)
            one.take_snapshot(rng.randrange(one.log_start + 1, one.high_watermark + 1))
    elif drawn < 0.76 + LOSSES and world.machine(1).key.directory_id is None:
        _lose(world, rng)
    elif drawn < 0.80:
        for machine in up:
            machine.crash(loses_power=rng.random() < 0.5)
        world.start()


def _lose(world: QuorumWorld, rng: Random) -> None:
    """As many as a quorum can stand: of those that have not recovered there is never a majority, nor half of them."""
    voters = [world.machine(number) for number in world.machine(1).configured.ids]
    lost = [one for one in voters if one.state is not None and one.state.is_lost]
    if 2 * (len(lost) + 1) < len(voters):
        machine = rng.choice(voters)
        if machine.node is not None:
            world.crash(machine.id, loses_power=rng.random() < 0.5)
        machine.lose(rng.choice(["log", "votes", "both"]))


def _change_voters(world: QuorumWorld, rng: Random) -> None:
    leading = [machine for machine in world.machines.values() if machine.leads]
    if not leading:
        return
    leader, key = rng.choice(leading), rng.choice(list(world.machines.values())).key
    assert leader.node is not None
    try:
        if leader.node.voters.latest.version == 0:
            voters = decide_voters_in_log(leader.node)
        elif leader.node.voters.latest.is_voter(key):
            voters = decide_remove_voter(leader.node, key)
        else:
            voters = decide_add_voter(leader.node, Voter(key), world.now_ms)
    except KafkaError:
        return
    leader.propose(voters)


def _resign(world: QuorumWorld, machine: Machine) -> None:
    machine.tell(lambda node: node.on_resign(world.now_ms))
