"""What a node is to the metadata log, and what makes it something else: a table.

```
                       ┌────────────── a leader is known ─────────────────┐
                       │                                                  ▼
 start ─▶ UNATTACHED ──┴─ time-out ─▶ PROSPECTIVE ◀─ silence, or closed ─ FOLLOWER
              ▲                            │ pre-vote won                 │ its leader ended:
              │ lost, or a newer epoch     ▼                              ▼ UNATTACHED
              └───────────────────────  CANDIDATE ── elected ─▶ LEADER ── resigned ─▶ RESIGNED
```

Kafka: `QuorumState`.
"""

from __future__ import annotations

from enum import Enum

from tidelog.quorum.values import Role


class RoleCause(Enum):
    """Why a role changes."""

    NEWER_EPOCH = "an epoch above its own is known"
    LEADER_FOUND = "the leader of its epoch is known"
    LEADER_ENDED = "its leader said that it leads no more"
    TIMED_OUT = "it heard of no leader for too long, or the connection to it closed"
    SUCCEEDS = "its leader named it as the first to follow it"
    PRE_VOTE_WON = "a majority would vote for it"
    LOST = "no majority votes for it"
    LEADER_STANDS = "no majority would vote for it, for there is a leader"
    ELECTED = "a majority voted for it"
    RESIGNS = "it stops, it was removed, or no majority fetches from it"
    REMOVED = "it is no voter any more"


TRANSITIONS: dict[tuple[Role, RoleCause], Role] = {
    **{(role, RoleCause.NEWER_EPOCH): Role.UNATTACHED for role in Role},
    (Role.UNATTACHED, RoleCause.LEADER_FOUND): Role.FOLLOWER,
    (Role.PROSPECTIVE, RoleCause.LEADER_FOUND): Role.FOLLOWER,
    (Role.CANDIDATE, RoleCause.LEADER_FOUND): Role.FOLLOWER,
    (Role.FOLLOWER, RoleCause.LEADER_ENDED): Role.UNATTACHED,
    (Role.PROSPECTIVE, RoleCause.LEADER_ENDED): Role.UNATTACHED,
    (Role.UNATTACHED, RoleCause.TIMED_OUT): Role.PROSPECTIVE,
    (Role.FOLLOWER, RoleCause.TIMED_OUT): Role.PROSPECTIVE,
    (Role.RESIGNED, RoleCause.TIMED_OUT): Role.PROSPECTIVE,
    (Role.UNATTACHED, RoleCause.SUCCEEDS): Role.CANDIDATE,
    (Role.PROSPECTIVE, RoleCause.PRE_VOTE_WON): Role.CANDIDATE,
    (Role.PROSPECTIVE, RoleCause.LOST): Role.UNATTACHED,
    (Role.CANDIDATE, RoleCause.LOST): Role.UNATTACHED,
    (Role.PROSPECTIVE, RoleCause.LEADER_STANDS): Role.FOLLOWER,
    (Role.CANDIDATE, RoleCause.ELECTED): Role.LEADER,
    (Role.LEADER, RoleCause.RESIGNS): Role.RESIGNED,
    (Role.PROSPECTIVE, RoleCause.REMOVED): Role.UNATTACHED,
    (Role.CANDIDATE, RoleCause.REMOVED): Role.UNATTACHED,
}
"""What is absent cannot happen: a leader hears of no other leader in its epoch, and loses it only by resigning."""
