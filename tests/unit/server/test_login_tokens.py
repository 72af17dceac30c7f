"""Whoever logs in with a consistency token is known, or not, by metadata that is no older than that (KIP-1243)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from support.clients.token_client import LATE, OneNode, TokenClient, play
from tidelog.base.errors import NetworkError, SaslAuthenticationError
from tidelog.net.address import Address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.net.logins import ScramLogin
from tidelog.net.security import ConnectionSecurity
from tidelog.security.scram import ScramSecret, salted_password
from tidelog.sim.node import CLIENT_PORT, CONTROLLER_PORT
from tidelog.wire import ConsistencyState
from tidelog.wire.messages.api_51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

SCRAM, SCRAM_NUMBER = "SCRAM-SHA-256", 1
USERS_PORT = 9095
PROPERTIES = {
    "listeners": ",".join(
        (
            f"PLAINTEXT://node-1:{CLIENT_PORT}",
            f"CONTROLLER://node-1:{CONTROLLER_PORT}",
            f"USERS://node-1:{USERS_PORT}",
        )
    ),
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT",
    "listener.name.users.sasl.enabled.mechanisms": SCRAM,
}
WAIT_SECONDS = 5
ALICE = AlterUserScramCredentialsRequest(
    upsertions=[
        ScramCredentialUpsertion(
            "alice", SCRAM_NUMBER, 4096, b"salt", salted_password(SCRAM, "of alice", b"salt", 4096)
        )
    ]
)
NO_ALICE = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("alice", SCRAM_NUMBER)])


def with_users(story: Callable[[OneNode, TokenClient], Awaitable[None]]) -> None:
    """Play with a node that has users, and an administrator who may do everything."""

    async def run(one: OneNode) -> None:
        async with one.client() as admin:
            await story(one, admin)

    play(run, PROPERTIES)


async def log_in(one: OneNode, token: int | None) -> None:
    """As alice, by whoever has seen the metadata of that offset."""
    world = one.world.client_world("client")
    client = TokenClient(None if token is None else ConsistencyState(one.node.cluster_id, token))
    login = ScramLogin(ScramSecret(SCRAM, "alice", "of alice"), world.rng)
    settings = ConnectionSettings("alice", consistency=client, security=ConnectionSecurity(None, login, world.rng))
    (await open_connection(world.network, Address("node-1", USERS_PORT), settings)).close()


def test_a_user_that_was_made_elsewhere_is_waited_for() -> None:
    async def story(one: OneNode, admin: TokenClient) -> None:
        with pytest.raises(SaslAuthenticationError):
            await log_in(one, one.last_offset)
        logging_in = asyncio.ensure_future(log_in(one, one.last_offset + 1))
        await one.until(lambda: one.waiting)
        await admin.ask(ALICE)
        await logging_in

    with_users(story)


def test_a_user_that_was_removed_elsewhere_is_let_in_no_more() -> None:
    async def story(one: OneNode, admin: TokenClient) -> None:
        await admin.ask(ALICE)
        await log_in(one, one.last_offset)
        logging_in = asyncio.ensure_future(log_in(one, one.last_offset + 1))
        await one.until(lambda: one.waiting)
        await admin.ask(NO_ALICE)
        with pytest.raises(SaslAuthenticationError):
            await logging_in

    with_users(story)


def test_who_logs_in_with_a_token_that_does_not_come_is_hung_up_on_and_not_refused() -> None:
    """A refusal would say that the password is wrong: clients do not try again after one."""

    async def story(one: OneNode, admin: TokenClient) -> None:
        await admin.ask(ALICE)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(NetworkError):
            await log_in(one, LATE)
        assert WAIT_SECONDS <= loop.time() - began < WAIT_SECONDS + 1
        assert not one.waiting

    with_users(story)


def test_who_sends_no_token_waits_for_nothing() -> None:
    async def story(one: OneNode, admin: TokenClient) -> None:
        await admin.ask(ALICE)
        await log_in(one, None)

    with_users(story)
