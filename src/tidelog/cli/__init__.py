"""The `tidelog` command."""

from tidelog.cli.app import main

__all__ = ["main"]
