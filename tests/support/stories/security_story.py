"""Stories of users and rights: what a broker that is behind lets somebody do, and whom it lets in (KIP-1243).

They go on as stories of tokens do. One client administers, as a super user, and acts for two others: alice, whom the
files of the nodes know, and bob, whose password is in the metadata. What it has seen all three have seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from support.clients.token_requests import ALL_TOPICS, REQUESTS
from support.old_rules.token_rules import OLD_SECURITY_RULES, TokenRules
from support.stories.datadriven import Command
from support.stories.token_story import TokenStory, running
from support.worlds.replica_values import name_of
from support.worlds.token_world import CONTEXT, TokenWorld, errors_of
from tidelog.base.errors import Code, NetworkError, SaslAuthenticationError
from tidelog.base.ids import BrokerId
from tidelog.metadata.acls import AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.net.address import Address
from tidelog.security.scram import salted_password
from tidelog.sim.checkers.registers import Register, Registers, Sight
from tidelog.sim.checkers.views import Broken
from tidelog.sim.node import CLIENT_PORT, CONTROLLER_PORT
from tidelog.sim.runs.security_plan import AUTHORIZER, SCRAM, USERS, USERS_PORT, password_of
from tidelog.sim.runs.user_connections import Peer, UserConnections
from tidelog.wire.messages.api_30_create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.api_31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.api_51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

ALICE, BOB = "alice", "bob"
SCRAM_NUMBER, ITERATIONS, SALT = 1, 4_096, b"salt"


def properties_of(host: str) -> Mapping[str, str]:
    """Of a node that asks alice and bob who they are, and goes by access rules."""
    listener = f"listener.name.{USERS.lower()}"
    return {
        "listeners": ",".join(
            (
                f"PLAINTEXT://{host}:{CLIENT_PORT}",
                f"CONTROLLER://{host}:{CONTROLLER_PORT}",
                f"{USERS}://{host}:{USERS_PORT}",
            )
        ),
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{USERS}:SASL_PLAINTEXT",
        f"{listener}.sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        f"{listener}.plain.sasl.jaas.config": f'PlainLoginModule required user_{ALICE}="{password_of(ALICE)}";',
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }


class SecurityStory(TokenStory):
    """Nodes, and a client that administers them and acts for others."""

    old_rules = OLD_SECURITY_RULES

    def __init__(self, rules: TokenRules | None = None) -> None:
        super().__init__(rules)
        inherited = {name: row for name, row in self.table.items() if name not in ("nodes", "ask")}
        kinds = "|".join(REQUESTS.keys() - ALL_TOPICS)
        self.table = {
            "secured": ("secured NODE...: as nodes, with an authorizer; the client is a super user", self._secured),
            "allow": ("allow TOPIC at=NODE...: alice may do everything with a topic", self._allow),
            "revoke": ("revoke TOPIC at=NODE...: she may no more", self._revoke),
            "connect": ("connect NODE: alice logs in there, and stays connected", self._connect),
            "ask": (f"ask NODE REQUEST TOPIC: alice asks, on that connection, for {kinds}", self._ask_as_alice),
            "password": ("password WORD at=NODE...: bob has this one from now on", self._password),
            "remove": ("remove at=NODE...: bob has none any more", self._remove),
            "log-in": ("log-in NODE WORD: bob logs in by that password, and hangs up", self._log_in),
            **inherited,
        }
        self._registers = Registers()
        self._users: UserConnections | None = None

    @property
    def users(self) -> UserConnections:
        assert self._users is not None
        return self._users

    # The commands.

    def _secured(self, command: Command) -> None:
        self._world = TokenWorld(len(command.words), self.rules, properties=properties_of)
        self._users = UserConnections(self._world.client, self._world.store)

    def _allow(self, command: Command) -> None:
        (name,) = command.words
        row = AclCreation(
            AclResourceType.TOPIC,
            name,
            PatternType.LITERAL,
            f"User:{ALICE}",
            "*",
            AclOperation.ALL,
            AclPermission.ALLOW,
        )
        self._write(command, _right(name), True, CreateAclsRequest(creations=[row]))

    def _revoke(self, command: Command) -> None:
        (name,) = command.words
        row = DeleteAclsFilter(
            AclResourceType.TOPIC,
            name,
            PatternType.LITERAL,
            f"User:{ALICE}",
            "*",
            AclOperation.ALL,
            AclPermission.ALLOW,
        )
        self._write(command, _right(name), None, DeleteAclsRequest(filters=[row]))

    def _password(self, command: Command) -> None:
        (word,) = command.words
        salted = salted_password(SCRAM, word, SALT, ITERATIONS)
        row = ScramCredentialUpsertion(BOB, SCRAM_NUMBER, ITERATIONS, SALT, salted)
        self._write(command, BOB, word, AlterUserScramCredentialsRequest(upsertions=[row]))

    def _remove(self, command: Command) -> None:
        row = ScramCredentialDeletion(BOB, SCRAM_NUMBER)
        self._write(command, BOB, None, AlterUserScramCredentialsRequest(deletions=[row]))

    def _write(self, command: Command, register: Register, value: object, request: object) -> None:
        node_id = running(command, self.world, command.options["at"])

        async def do() -> None:
            begun = self._registers.begin_write(register, value)
            answer = await self.world.ask(node_id, request, None)
            errors = [] if answer is None else errors_of(answer)
            if errors:
                self.world.events.append(f"{name_of(node_id)} does not do it: {', '.join(one.name for one in errors)}")
            elif answer is not None:
                self._registers.on_written(CONTEXT, begun)

        self.world.run(do())

    def _connect(self, command: Command) -> None:
        self.world.run(self.users.connect(self._peer(running(command, self.world, command.words[0])), ALICE))

    def _ask_as_alice(self, command: Command) -> None:
        letter, kind, name = command.words
        if kind not in REQUESTS or kind in ALL_TOPICS:
            raise command.refuse(f"there is no such request. There are: {' '.join(REQUESTS.keys() - ALL_TOPICS)}")
        self.world.run(self._ask_and_hear(running(command, self.world, letter), kind, name))

    async def _ask_and_hear(self, node_id: BrokerId, kind: str, name: str) -> None:
        make, version = REQUESTS[kind]
        begun, began, who = self._registers.begin_read(CONTEXT), self.world.now, name_of(node_id)
        try:
            answered = await self.users.ask(self._peer(node_id), ALICE, make(name), version)
        except NetworkError:
            self.world.events.append(f"{who} hangs up on {ALICE}{self.world.waited(began)}")
            return
        errors = errors_of(answered.response)
        said = ", ".join(dict.fromkeys(code.name for code in errors)) or "nothing wrong"
        self.world.events.append(f"{who} tells {ALICE} of {kind} of {name}: {said}{self.world.waited(began)}")
        if Code.STALE_METADATA not in errors:
            may = Code.TOPIC_AUTHORIZATION_FAILED not in errors
            told = f"by {who} that {ALICE} {'may' if may else 'may not'}"
            sight = Sight(told, lambda value: (value is True) == may, is_grant=may)
            self._note(self._registers.on_answered(begun, {_right(name): sight}))

    def _log_in(self, command: Command) -> None:
        letter, word = command.words
        self.world.run(self._log_in_and_hear(running(command, self.world, letter), word))

    async def _log_in_and_hear(self, node_id: BrokerId, word: str) -> None:
        begun, began, who = self._registers.begin_read(CONTEXT), self.world.now, name_of(node_id)
        try:
            await self.users.log_in(self._peer(node_id), BOB, word)
        except SaslAuthenticationError:
            self.world.events.append(f"{who} refuses {BOB}{self.world.waited(began)}")
            sight = Sight(f"by {who} that {word!r} is wrong", lambda value: value != word)
        except NetworkError:
            self.world.events.append(f"{who} hangs up on {BOB}{self.world.waited(began)}")
            return
        else:
            self.world.events.append(f"{who} lets {BOB} in{self.world.waited(began)}")
            sight = Sight(f"by {who} that {word!r} is right", lambda value: value == word, is_grant=True)
        self._note(self._registers.on_answered(begun, {BOB: sight}))

    def _peer(self, node_id: BrokerId) -> Peer:
        return Peer(node_id, Address(self.world.nodes[node_id].machine.name, USERS_PORT))

    def _note(self, found: Iterable[Broken]) -> None:
        self.world.broken += [str(one) for one in found]


def _right(name: str) -> Register:
    return f"the right of {ALICE} to {name}"
