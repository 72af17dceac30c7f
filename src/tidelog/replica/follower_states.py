"""What a follower may be about, and why that changes.

```
  TRUNCATING ──reconciled──▶ LEARNING ──learnt──▶ FETCHING ──out of range──▶ LOCATING
      ▲  ▲                       ▲                   │                        │   │
      │  └───────diverged────────┼───────────────────┘                        │   │
      └──────lies within─────────┼────────────────────────────────────────────┘   │
                                 └─────────────────started anew───────────────────┘
  TRUNCATING ──nothing shared──▶ LOCATING     every state ──stopped──▶ STOPPED
  TRUNCATING ──belied──▶ HALTED: what was committed here the leader lacks, and no election explains it
  LEADERLESS: nobody leads in this epoch
```

Kafka: `PartitionFetchState`.
"""

from __future__ import annotations

from enum import Enum


class FollowerState(Enum):
    """What a follower is about."""

    LEADERLESS = "leaderless"
    TRUNCATING = "truncating"
    LEARNING = "learning"
    FETCHING = "fetching"
    LOCATING = "locating"
    HALTED = "halted"
    STOPPED = "stopped"


class FollowerCause(Enum):
    """Why that changes."""

    RECONCILED = "reconciled"
    LEARNT = "learnt"
    DIVERGED = "diverged"
    OUT_OF_RANGE = "out of range"
    LIES_WITHIN = "lies within"
    NOTHING_SHARED = "nothing shared"
    BELIED = "belied"
    STARTED_ANEW = "started anew"
    STOPPED = "stopped"


TRANSITIONS: dict[tuple[FollowerState, FollowerCause], FollowerState] = {
    (FollowerState.TRUNCATING, FollowerCause.RECONCILED): FollowerState.LEARNING,
    (FollowerState.TRUNCATING, FollowerCause.NOTHING_SHARED): FollowerState.LOCATING,
    (FollowerState.TRUNCATING, FollowerCause.BELIED): FollowerState.HALTED,
    (FollowerState.LEARNING, FollowerCause.LEARNT): FollowerState.FETCHING,
    (FollowerState.FETCHING, FollowerCause.DIVERGED): FollowerState.TRUNCATING,
    (FollowerState.FETCHING, FollowerCause.OUT_OF_RANGE): FollowerState.LOCATING,
    (FollowerState.LOCATING, FollowerCause.LIES_WITHIN): FollowerState.TRUNCATING,
    (FollowerState.LOCATING, FollowerCause.STARTED_ANEW): FollowerState.LEARNING,
    **{(state, FollowerCause.STOPPED): FollowerState.STOPPED for state in FollowerState},
}
