"""Nodes that ask each other nothing, so that a test may ask them what only nodes ask."""

from __future__ import annotations

from collections.abc import Mapping

OF_SECRET = ("listener.security.protocol.map", "inter.broker.listener.name", "authorizer.class.name", "super.users")
"""What `tidelog up` sets, beside what is about SASL, so that its nodes log in to each other."""


def without_secret(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of `tidelog up`, but for that its nodes log in to each other: those of earlier releases."""
    kept = {key: value for key, value in settings.items() if "sasl" not in key and key not in OF_SECRET}
    listeners = [one for one in settings["listeners"].split(",") if not one.startswith("NODES://")]
    return kept | {"listeners": ",".join(listeners)}
