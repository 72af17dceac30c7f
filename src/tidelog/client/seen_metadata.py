"""How far the metadata is that a client has seen, alone or together with those it shares a store with (KIP-1243).

A token is the last offset of the metadata log that an answer reflects. With a consistency context no answer is older
than the latest token that the clients of one store had seen when it was asked for. Answers of several brokers may
overtake each other: one that reflects less than what the client holds by then is not taken over.
"""

from __future__ import annotations

from tidelog.base.errors import Code, refusal
from tidelog.client.consistency import ConsistencyContextStore, foreign_cluster
from tidelog.client.core.values import code_of
from tidelog.net.address import Address
from tidelog.wire import ConsistencyState
from tidelog.wire.messages.api_03_metadata import MetadataResponse


class SeenMetadata:
    """See the module.

    Args:
        store: the client's; None if its metadata may go back in time.
    """

    def __init__(self, store: ConsistencyContextStore | None) -> None:
        self._store = store
        self._reflects: int | None = None

    @property
    def has_store(self) -> bool:
        """Whether metadata may not go back in time."""
        return self._store is not None

    @property
    def token(self) -> int | None:
        """The latest that this client, or one that it shares its store with, has seen; None if none yet."""
        return None if self._store is None else self._store.read().token

    @property
    def reflects(self) -> int | None:
        """The token of the newest answer that the client holds; None if none had one."""
        return self._reflects

    @property
    def is_of_a_cluster(self) -> bool:
        """Whether it is known of which cluster the brokers have to be."""
        return self._store is not None and not self._store.read().is_unknown

    def see(self, address: Address, offset: int, seen: int | None) -> None:
        """An answer without a token says by itself which offset of the metadata log it reflects.

        Args:
            address: of the broker.
            offset: -1 if the broker has no metadata yet.
            seen: `token` when the request was sent.

        Raises:
            KafkaError: STALE_METADATA: the answer is older.
        """
        if self._store is None or seen is None:
            return
        if offset < seen:
            what = f"the metadata of {address} is of offset {offset}, and offset {seen} was seen"
            raise refusal(Code.STALE_METADATA, what)
        self._store.on_state(ConsistencyState(self._store.read().cluster_id, offset))

    def check(self, address: Address, response: MetadataResponse) -> None:
        """Raises KafkaError: the answer says nothing of the metadata, or is of another cluster's."""
        known = None if self._store is None else self._store.read()
        if known is not None and not known.is_unknown and response.cluster_id not in (None, known.cluster_id):
            error = foreign_cluster(known, response.cluster_id)  # of a broker without tokens
            raise refusal(error.code, f"{address}: {error}")
        codes = {code_of(topic.error_code) for topic in response.topics}
        if response.error_code == Code.STALE_METADATA or codes == {Code.STALE_METADATA}:
            what = f"the metadata of {address} is older than what was seen elsewhere (STALE_METADATA)"
            raise refusal(Code.STALE_METADATA, what)
        if response.error_code:
            code = code_of(response.error_code)
            raise refusal(code, f"{address} refused Metadata: {code.meaning} ({code.name})")

    def takes_over(self, address: Address, token: int | None, before: int | None) -> bool:
        """Hold an answer, unless a newer one is held by now.

        Args:
            address: of the broker.
            token: of the answer; None if the broker says none.
            before: what `reflects` was when the request was sent.

        Returns:
            False where another answer overtook it; the next request bears the newer token.

        Raises:
            KafkaError: STALE_METADATA: the answer is older than what was held when it was asked for.
        """
        if token is None or self._reflects is None or token >= self._reflects:
            self._reflects = self._reflects if token is None else token
            return True
        if before is not None and token < before:
            what = f"reflects offset {token}, and this client has seen offset {before}"
            raise refusal(Code.STALE_METADATA, f"the metadata of {address} {what}")
        return False
