"""The roles of listeners: each serves the APIs of one kind of peer.

Kafka: `ApiMessageType.ListenerType`.
"""

from __future__ import annotations

BROKER = "broker"
"""Clients, and brokers where they share a listener with clients."""
INTER_BROKER = "inter-broker"
"""A listener of brokers that clients do not use. All that a broker serves is served there, and what nodes alone ask."""
CONTROLLER = "controller"
"""The nodes of the cluster, and administrators who talk to the controllers themselves."""
