"""`tidelog log dump`: what is in the files of a log."""

from __future__ import annotations
