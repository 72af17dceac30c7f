"""Every kind of fault there is. A module of faults is added by its `FAULTS`."""

from __future__ import annotations

from chaos import (
    clock_faults,
    disk_faults,
    lost_log_faults,
    network_faults,
    operator_faults,
    process_faults,
    quorum_faults,
    reassignment_faults,
    scale_faults,
    secret_faults,
    stranger_faults,
    upgrade_faults,
)

FAULTS = (
    *process_faults.FAULTS,
    *network_faults.FAULTS,
    *clock_faults.FAULTS,
    *disk_faults.FAULTS,
    *lost_log_faults.FAULTS,
    *operator_faults.FAULTS,
    *quorum_faults.FAULTS,
    *reassignment_faults.FAULTS,
    *scale_faults.FAULTS,
    *secret_faults.FAULTS,
    *stranger_faults.FAULTS,
    *upgrade_faults.FAULTS,
)
MIXED = "mixed"
"""The kind of a round in which all of them are played, now and then two at a time."""
