"""Keeps the quotas of clients at a broker as the metadata says them.

Kafka: `DynamicClientQuotaPublisher`.
"""

from __future__ import annotations

from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.quotas.client_quotas import ClientQuotas


class ClientQuotasInForce(BrokerListener):
    """Tells them what is set, whenever that changes."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """To be called on the loop, before `image` is published: who is answered from it finds it in force."""
        if delta.are_client_quotas_changed:
            self._quotas.set_quotas(image.client_quotas)
