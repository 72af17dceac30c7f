"""Share groups (KIP-932): the coordinator spreads members over partitions, and begins and ends what the group keeps."""
