"""Versions that two peers have in common, and back-off."""

from __future__ import annotations

import pytest

from tidelog.base.errors import UnsupportedVersionError
from tidelog.io.rng import SystemRng
from tidelog.net.backoff import Backoff
from tidelog.net.versions import PeerVersions
from tidelog.wire import APIS, ApiKey

FETCH = APIS[ApiKey.FETCH]


def test_the_highest_version_that_both_have_is_chosen() -> None:
    assert PeerVersions("b", {ApiKey.FETCH: (0, 11)}).version(ApiKey.FETCH) == 11
    assert PeerVersions("b", {ApiKey.FETCH: (4, 99)}).version(ApiKey.FETCH) == FETCH.max_version
    assert PeerVersions("b", {ApiKey.FETCH: (4, 99)}).version(ApiKey.FETCH, max_version=12) == 12


def test_a_version_that_is_only_declared_is_not_chosen() -> None:
    newer = dict.fromkeys(APIS, (0, 99))
    chosen = {key: PeerVersions("b", newer).version(key) for key in APIS}
    assert chosen == {key: known.max_version for key, known in APIS.items()}


def test_an_old_broker_is_named_with_api_and_versions() -> None:
    with pytest.raises(UnsupportedVersionError) as error:
        PeerVersions("host:1", {ApiKey.FETCH: (0, 2)}).version(ApiKey.FETCH)
    assert str(error.value) == (
        f"host:1 is too old: it serves Fetch in versions 0-2,"
        f" and versions {FETCH.min_version}-{FETCH.max_version} are needed here"
    )


def test_a_new_broker_and_one_without_the_api_are_named_too() -> None:
    with pytest.raises(UnsupportedVersionError, match="too new: it serves Fetch in versions 90-99"):
        PeerVersions("b", {ApiKey.FETCH: (90, 99)}).version(ApiKey.FETCH)
    with pytest.raises(UnsupportedVersionError, match="does not serve Fetch"):
        PeerVersions("b", {}).version(ApiKey.FETCH)
    with pytest.raises(UnsupportedVersionError, match="versions 13-18 are needed"):
        PeerVersions("b", {ApiKey.FETCH: (4, 12)}).version(ApiKey.FETCH, min_version=13)


def test_back_off_doubles_up_to_its_limit_and_is_never_in_step() -> None:
    backoff = Backoff(100, 1_000, SystemRng())
    assert backoff.delay_ms(0) == 0
    for failures, middle in ((1, 100), (2, 200), (4, 800), (5, 1_000), (500, 1_000)):
        delays = {backoff.delay_ms(failures) for _ in range(50)}
        assert all(0.8 * middle <= delay <= 1.2 * middle for delay in delays)
        assert len(delays) > 5
