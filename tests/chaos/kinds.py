"""Every kind of fault there is. A module of faults is added by its `FAULTS`."""

from __future__ import annotations

from chaos import network_faults, process_faults

FAULTS = (*process_faults.FAULTS, *network_faults.FAULTS)
MIXED = "mixed"
"""The kind of a round in which all of them are played, now and then two at a time."""
