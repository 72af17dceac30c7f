"""The states of share groups: their coordinators here, and whoever asks them, here or on other brokers (KIP-932)."""
