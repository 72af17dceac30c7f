"""`tidelog storage`: prepare the directory of a node that is not alone in its cluster."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from tidelog.base.ids import uuid_text
from tidelog.cli.command import UsageError, argument, log_level_option, option, output_option
from tidelog.cli.output import Rows
