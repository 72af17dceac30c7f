"""`tidelog log dump`: what is in the files of a log."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.cli.command import argument, log_level_option, option, output_option
from tidelog.cli.output import Rows
