"""How connections end."""

from __future__ import annotations

from enum import StrEnum


class Closed(StrEnum):
    """Why a connection came to its end."""

    BY_PEER = "peer"
    HANDSHAKE = "handshake"  # that of TLS failed
    AUTHENTICATION = "authentication"  # it did not show who it is, or a session was over
    IDLE = "idle"
    UNFINISHED = "unfinished"  # a request that did not come to its end within the idle limit
    NOT_READING = "not_reading"  # answers that nobody took within the idle limit
    MEMORY = "memory"  # it stood still, and others needed the memory
    REFUSED = "refused"  # what came is not the protocol, or cannot be answered in it
    FAILED = "failed"  # a bug of ours, or an answer that could not be completed
    STOPPED = "stopped"  # the node did
