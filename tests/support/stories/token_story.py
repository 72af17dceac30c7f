"""Stories of consistency tokens: what a client has seen, and what brokers that know less than that tell it (KIP-1243).

`C follows t, behind the client` is a node: whether it leads the metadata quorum, the topics that it knows, and whether
its metadata is older than what the client has seen. Brokers are letters; the client reaches all of them, always.
"""

from __future__ import annotations

from typing import Any

from support.clients.token_requests import ALL_TOPICS, REQUESTS, create, delete
from support.old_rules.token_rules import OLD_TOKEN_RULES, TokenRules
from support.stories.datadriven import Command
from support.stories.played_story import PlayedStory
from support.worlds.replica_values import name_of
from support.worlds.token_world import CONTEXT, UNKNOWN, TokenWorld, errors_of
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId
from tidelog.sim.node import SimulatedNode


class TokenStory(PlayedStory[TokenRules, TokenWorld]):
    """Nodes and a client, and the commands that made them what they are."""

    todays_rules, old_rules = TokenRules, OLD_TOKEN_RULES

    def __init__(self, rules: TokenRules | None = None) -> None:
        super().__init__(rules)
        kinds = "|".join(REQUESTS)
        self.table = {
            "nodes": (
                "nodes NODE... [snapshot-bytes=COUNT]: of one cluster; the first one leads the quorum",
                self._nodes,
            ),
            "create": ("create TOPIC at=NODE... on=NODE...: the client asks a node for a topic", self._create),
            "delete": ("delete TOPIC at=NODE...: likewise", self._delete),
            "ask": (f"ask NODE REQUEST [TOPIC] [version=COUNT]: {kinds}; without a topic, of all", self._ask),
            "hold": ("hold NODE: it applies no metadata for half a second from now on", self._hold),
            "cut-off": ("cut-off NODE: nothing reaches it from other nodes, nor they from it", self._cut_off),
            "reconnect": ("reconnect: all", self._reconnect),
            "crash": ("crash NODE: its process ends", self._crash),
            "start": ("start NODE: again", self._start),
            "settle": ("settle: until somebody leads, and all who are connected know what is committed", self._settle),
        }

    def close(self) -> None:
        if self._world is not None:
            self._world.close()

    def broken(self) -> list[str]:
        return self.world.broken

    def picture(self) -> list[str]:
        nodes = [_line(self.world, node_id, node) for node_id, node in self.world.nodes.items()]
        return [*nodes, f"the client knows {' '.join(sorted(self.world.known)) or 'no topic'}"]

    # The commands.

    def _nodes(self, command: Command) -> None:
        names = list(command.words)
        if names != [name_of(BrokerId(number)) for number in range(1, len(names) + 1)]:
            raise command.refuse("nodes are the first letters: nodes A B C")
        snapshot_bytes = command.options.get("snapshot-bytes")
        self._world = TokenWorld(
            len(names), self.rules, snapshot_bytes=None if snapshot_bytes is None else int(snapshot_bytes)
        )

    def _create(self, command: Command) -> None:
        (name,) = command.words
        node_id, on = running(command, self.world, command.options["at"]), self._node(command, command.options["on"])

        async def do() -> None:
            answer = await self.world.ask(node_id, create(name, on), None)
            if answer is None:
                return
            (row,) = answer.topics
            if row.error_code:
                self.world.events.append(f"{name_of(node_id)} does not make {name}: {Code(row.error_code).name}")
                return
            self.world.reads.on_created(CONTEXT, name, self.world.topic_id(row.topic_id), 1)
            self.world.known.add(name)

        self.world.run(do())

    def _hold(self, command: Command) -> None:
        self.world.run(self.world.hold(running(command, self.world, command.words[0])))

    def _delete(self, command: Command) -> None:
        (name,) = command.words
        node_id = running(command, self.world, command.options["at"])

        async def do() -> None:
            self.world.reads.on_deletion_begun(name)
            answer = await self.world.ask(node_id, delete(name), None)
            if answer is None:
                return
            (row,) = answer.responses
            if row.error_code:
                self.world.events.append(f"{name_of(node_id)} does not delete {name}: {Code(row.error_code).name}")
                return
            self.world.reads.on_deleted(CONTEXT, name, self.world.topic_id(row.topic_id))
            self.world.known.discard(name)

        self.world.run(do())

    def _ask(self, command: Command) -> None:
        letter, kind, *names = command.words
        node_id = running(command, self.world, letter)
        if kind not in REQUESTS:
            raise command.refuse(f"there is no such request. There are: {' '.join(REQUESTS)}")
        make, version = REQUESTS[kind]
        name = names[0] if names else None
        if (name is None) != (kind in ALL_TOPICS):
            raise command.refuse("it is asked of a topic" if name is None else "it is asked of all topics")
        given = command.options.get("version")
        self.world.run(self._ask_and_tell(node_id, kind, make(name), int(given) if given else version, name))

    async def _ask_and_tell(
        self, node_id: BrokerId, kind: str, request: Any, version: int | None, name: str | None
    ) -> None:
        world, who = self.world, name_of(node_id)
        begun, began = world.reads.begin(CONTEXT), world.now
        answer = await world.ask(node_id, request, version)
        if answer is None:
            return
        errors = errors_of(answer)
        said = ", ".join(dict.fromkeys(code.name for code in errors)) or "nothing wrong"
        world.events.append(f"{who} is asked {kind}{f' of {name}' if name else ''}: {said}{world.waited(began)}")
        if name is not None and UNKNOWN & set(errors):
            world.on_read(begun, {name: None})
        elif not errors and kind.split("-", maxsplit=1)[0] in ("metadata", "partitions"):
            found = {topic.name: world.topic_read(topic) for topic in answer.topics}
            asked = dict.fromkeys(world.known) if name is None else {}
            world.on_read(begun, asked | found)

    def _cut_off(self, command: Command) -> None:
        self.world.cut_off(self._node(command, command.words[0]))

    def _reconnect(self, command: Command) -> None:
        self.world.reconnect()

    def _crash(self, command: Command) -> None:
        self.world.crash(running(command, self.world, command.words[0]))

    def _start(self, command: Command) -> None:
        node_id = self._node(command, command.words[0])
        if self.world.nodes[node_id].node is not None:
            raise command.refuse("it is up")
        self.world.run(self.world.start(node_id))

    def _settle(self, command: Command) -> None:
        self.world.run(self.world.settle())

    def _node(self, command: Command, letter: str) -> BrokerId:
        there: dict[str, BrokerId] = {name_of(node_id): node_id for node_id in self.world.nodes}
        if letter not in there:
            raise command.refuse(f"there is no node {letter}. There are: {' '.join(there)}")
        return there[letter]


def running(command: Command, world: TokenWorld, letter: str) -> BrokerId:
    """The node of that letter. Raises StoryError: it is not up."""
    there = {name_of(node_id): node_id for node_id, node in world.nodes.items() if node.node is not None}
    if letter not in there:
        raise command.refuse(f"no node {letter} is up. There are: {' '.join(there)}")
    return there[letter]


def _line(world: TokenWorld, node_id: BrokerId, simulated: SimulatedNode) -> str:
    node = simulated.node
    if node is None:
        return f"{name_of(node_id)} down"
    role = "leads  " if node.active_controller is not None else "follows"
    topics = " ".join(sorted(node.image.topics_by_name)) or "no topic"
    snapshot = ", by a snapshot" if world.has_loaded_a_snapshot(node_id) else ""
    return f"{name_of(node_id)} {role} {topics}{snapshot}{', behind the client' if world.is_behind(node) else ''}"
