"""Tidelog: a replicated log that speaks Kafka's protocol and stays truthful to its readers."""

__version__ = "0.1.0"
