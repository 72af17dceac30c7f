"""A batch on its way into a segment."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.records.header import BatchHeader


class Placed(NamedTuple):
    """A batch that is ready to be written."""

    position: int
    """In the buffer."""
    header: BatchHeader
    """Its `base_offset` and `leader_epoch` may be those that it came with, before it was stamped."""
    base_offset: int
    last_offset: int
    max_timestamp: int
