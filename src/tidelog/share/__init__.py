"""What a share group has done with a partition: its state, and how its records are delivered (KIP-932)."""

from tidelog.share.state import NO_LEADER_EPOCH, DeliveryState, ShareState, StateBatch, StateChange

__all__ = ["NO_LEADER_EPOCH", "DeliveryState", "ShareState", "StateBatch", "StateChange"]
