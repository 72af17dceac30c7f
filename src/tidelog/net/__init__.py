"""The outbound connection, as clients, fetchers and heartbeats use it: versions, order, deadlines, back-off."""
