"""Replicas of several nodes joined by a test controller: production's logs and machines, in a world from a seed."""
