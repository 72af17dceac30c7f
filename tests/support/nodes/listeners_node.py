"""A node that listens for each kind of peer apart."""

from __future__ import annotations

from pathlib import Path

from support.clients.wire_client import WireClient
from support.nodes.server_process import ServerProcess
from tidelog.cli.ports import free_ports
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER, INTER_BROKER
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse

HOST = "127.0.0.1"


class ListenersNode(ServerProcess):
    """A broker and controller with a listener for clients, one for brokers, and one for controllers.

    Attributes:
        ports: by the role of the listener.
    """

    def __init__(self, home: Path, **settings: str) -> None:
        roles = (BROKER, INTER_BROKER, CONTROLLER)
        self.ports = dict(zip(roles, free_ports(HOST, [None] * len(roles)), strict=True))
        super().__init__(home, home / "data")
        self.settings |= {
            "listeners": ",".join(
                f"{name}://{HOST}:{self.ports[role]}"
                for name, role in (("PLAINTEXT", BROKER), ("INTERNAL", INTER_BROKER), ("CONTROLLER", CONTROLLER))
            ),
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@{HOST}:{self.ports[CONTROLLER]}",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }

    def advertised(self, role: str) -> dict[ApiKey, range]:
        """The versions of each API that the listener of a role offers, as it answers itself."""
        asked = ApiVersionsRequest(client_software_name="tidelog", client_software_version="1")
        with WireClient(self.ports[role]) as client:
            rows = client.ask(ApiKey.API_VERSIONS, 4, asked, ApiVersionsResponse).api_keys
        return {ApiKey(row.api_key): range(row.min_version, row.max_version + 1) for row in rows}
