"""`tidelog storage`: prepare the directory of a node that is not alone in its cluster."""

from __future__ import annotations
