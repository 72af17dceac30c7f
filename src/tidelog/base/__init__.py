"""Ids, errors, invariants and ports: what every other package builds on."""
