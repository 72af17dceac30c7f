"""The events of a broker, and those that listen to them."""

from __future__ import annotations

from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.server.replication.partition import Partition


class BrokerListener:
    """Listens to the events of a broker, on the loop; each overrides what it needs."""

    def on_leadership_changed(self, partition: Partition) -> None:
        """The broker began or ceased to lead a partition; the image does not say so yet."""

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A run of committed records changed this; the image is about to be published."""

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The same run of records: time for what takes long, before `on_image_changed`."""

    def on_moved(self, partition: Partition) -> None:
        """The log of a partition lies in another log directory from now on."""

    def on_directory_failed(self) -> None:
        """What lies in one of the log directories is offline until the next start."""


class BrokerListeners(BrokerListener):
    """All that listen to a broker, each called after those that were added before."""

    def __init__(self) -> None:
        self._listeners: list[BrokerListener] = []

    def add(self, listener: BrokerListener) -> None:
        self._listeners.append(listener)

    def on_leadership_changed(self, partition: Partition) -> None:
        for listener in self._listeners:
            listener.on_leadership_changed(partition)

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for listener in self._listeners:
            listener.on_image_changed(delta, image)

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for listener in self._listeners:
            await listener.prepare(delta, image)

    def on_moved(self, partition: Partition) -> None:
        for listener in self._listeners:
            listener.on_moved(partition)

    def on_directory_failed(self) -> None:
        for listener in self._listeners:
            listener.on_directory_failed()
