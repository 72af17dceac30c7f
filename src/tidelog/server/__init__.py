"""The node: asyncio around the machines and journals, and the handlers that join them to the protocol."""
