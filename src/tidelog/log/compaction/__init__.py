"""Compaction: the newest record of each key stays."""
