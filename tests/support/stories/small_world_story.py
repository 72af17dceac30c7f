"""What was found in a small world, told as a scenario file is: commands, then the logs, then what is broken.

`elect`, `learn`, `produce`, `fetch`, `crash`, `power-loss` and `restart` are those of the stories of replicas; nobody
learns of anything by itself here, so `learn` is always said. A story knows no `ask` (a question about epochs, and its
answer) and no `lag` (a leader finds some to lag, of all who are behind): there they follow by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from support.exhaustive.small_world import SmallWorld
from support.exhaustive.small_world_parts import Part
from support.exhaustive.small_world_search import Action, Explored, State
from support.stories.datadriven import DASHES
from support.worlds.replica_values import name_of, text_of
from tidelog.base.ids import BrokerId
from tidelog.replica import RecordsRequest


def command_of(world: SmallWorld, before: State, action: Action) -> str:
    """How a story says what happened."""
    what, *about = action
    who = name_of(BrokerId(about[0])) if about and isinstance(about[0], int) else ""
    everyone = [name_of(part.replica.broker_id) for part in world.parts(before)]
    match what, *about:
        case "produce", int(), number:
            return f"produce {who} m{number}"
        case (("elect" | "elect-unclean"), int()):
            unclean = " unclean" if what == "elect-unclean" else ""
            return f"elect {who}{unclean} unaware={','.join(everyone)}"
        case "fetch", int(broker), *lost:
            part = world.parts(before)[broker - 1]
            is_fetch = isinstance(world.replicas.asks.values[part.ask], RecordsRequest)
            return f"{'fetch' if is_fetch else 'ask'} {who}" + (" answer=lost" if lost else "")
        case (("lag" | "grant"), int(), frozenset() as brokers):
            return f"{what} {who} {' '.join(name_of(BrokerId(broker)) for broker in sorted(brokers))}"
        case "power-loss", int(), keeps:
            return f"power-loss {who} keeps={keeps}"
    return f"{what} {who}"


def commands_of(world: SmallWorld, explored: Explored) -> list[str]:
    """One for each step."""
    everyone = " ".join(name_of(BrokerId(at + 1)) for at in range(world.size))
    min_insync = f" min-insync={world.bounds.min_insync}" if world.bounds.min_insync > 1 else ""
    commands, before = [f"cluster {everyone}{min_insync}"], world.initial
    for action, after in explored.steps:
        commands.append(command_of(world, before, action))
        before = after
    return commands


def scenario_of(world: SmallWorld, explored: Explored, *, says: str) -> str:
    """The whole file.

    Args:
        says: the rule that was tried.
    """
    state = explored.steps[-1][1]
    head = [
        f"# {says}",
        f"# The shortest way to break something: {explored.depth} steps, {explored.states:,} states seen.",
    ]
    body = [*commands_of(world, explored), DASHES, *picture(world, state), f"INVARIANT BROKEN {explored.broken}"]
    return "\n".join([*head, "", *body]) + "\n"


def picture(world: SmallWorld, state: State) -> list[str]:
    """All logs, as stories show them."""
    return [_line(part) for part in world.parts(state)]


def play(world: SmallWorld, commands: Sequence[str]) -> State:
    """Do what the commands say, each of which has to be possible.

    Raises:
        ValueError: one is not; says what is.
    """
    state = world.initial
    for command in commands[1:]:
        possible = {command_of(world, state, action): after for action, after in world.successors(state)}
        if command not in possible:
            raise ValueError(f"{command!r} cannot happen here. Possible are: {'; '.join(possible)}")
        state = possible[command]
    return state


def _line(part: Part) -> str:
    name = name_of(part.replica.broker_id)
    if not part.is_up:
        return f"{name} down"
    records = [text_of(record) for record in part.log]
    records.insert(part.high_watermark, "|")
    return f"{name} {'leader  ' if part.leads else 'follower'} epoch={part.epoch}  [{' '.join(records)}]"
