"""Hands the access rules of each image to the authorizer, before anybody is answered from that image."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.ids import Offset
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.security.acl_authorizer import AclAuthorizer
from tidelog.security.acl_index import AclIndex
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.transport.turns import in_turns

RULES_PER_TURN = 500


class AccessRules(BrokerListener):
    """The rules come into force once this node knows all that was committed when it asked first.

    Args:
        committed_end: of the metadata log, exclusive, as the quorum's leader says; None while that is not known.
    """

    def __init__(self, authorizer: AclAuthorizer, committed_end: Callable[[], Offset | None]) -> None:
        self._authorizer = authorizer
        self._committed_end = committed_end
        self._index = AclIndex()

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Work out what has changed, some rules at a time."""
        before = delta.base.acls
        builder = self._index.next() if delta.changed_acls else None
        async for acl_id in in_turns(delta.changed_acls, turn_size=RULES_PER_TURN):
            assert builder is not None
            old, new = before.get(acl_id), image.acls.get(acl_id)
            if old == new:
                continue
            if new is not None:
                builder.add(new)
            if old is not None:
                builder.remove(old)
        if builder is not None:
            self._index = builder.build()

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The image is about to be published."""
        if self._authorizer.index is None:
            end_offset = self._committed_end()
            if end_offset is None or image.last_offset is None or image.last_offset + 1 < end_offset:
                return
        self._authorizer.index = self._index
