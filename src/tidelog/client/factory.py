"""Clients that see one cluster's metadata never go back in time, between them as well (KIP-1243)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from tidelog.base.errors import ConfigError
from tidelog.client.consistency import ConsistencyContextStore
from tidelog.client.core.values import K, V
from tidelog.client.options import (
    AdminConfig,
    AdminOptions,
    CommonOptions,
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    deserializers_of,
    parse_options,
)
from tidelog.client.producer_arguments import BytesLike, serializers_of
from tidelog.client.producer_arguments import K as SentK
from tidelog.client.producer_arguments import V as SentV

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.async_admin import AsyncAdmin
    from tidelog.client.async_consumer import AsyncConsumer
    from tidelog.client.async_producer import AsyncProducer
    from tidelog.client.cluster import World
    from tidelog.client.consumer import Consumer
    from tidelog.client.producer import Producer


class Factory:
    """Makes clients that share a consistency context: what one of them has seen, all of them see.

        factory = Factory("127.0.0.1:9092")
        with factory.admin() as admin, factory.producer() as producer:
            admin.create_topics([NewTopic("flights")])
            producer.send("flights", b"...")  # whichever broker it asks knows the topic

    Args:
        bootstrap_servers: `host:port`, several with commas between them or as a list.
        store: where the context is kept; by default one that knows nothing yet.
        **options: of every client, unless that is given another: those that all clients take.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
        store: ConsistencyContextStore | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        parse_options(AdminConfig, "Factory", options)
        self._options = options
        self._bootstrap_servers = bootstrap_servers if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
        self.store = ConsistencyContextStore() if store is None else store

    def _shared(self, owner: str, options: Mapping[str, object]) -> dict[str, object]:
        return _sharing(self.store, owner, {**self._options, **options})

    def producer(
        self,
        *,
        key_serializer: Callable[[SentK], BytesLike] | None = None,
        value_serializer: Callable[[SentV], BytesLike] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Producer[SentK, SentV]:
        """A `Producer` with these options."""
        from tidelog.client.producer import Producer

        made: Producer[SentK, SentV] = Producer.__new__(Producer)
        serializers = serializers_of(key_serializer, value_serializer)
        config = parse_options(ProducerConfig, "Producer", self._shared("Producer", options))
        made._start(self._bootstrap_servers, config, serializers=serializers)
        return made

    def consumer(
        self,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[K, V]:
        """A `Consumer` with these options."""
        from tidelog.client.consumer import Consumer

        made: Consumer[K, V] = Consumer.__new__(Consumer)
        deserializers = deserializers_of("Consumer", key_deserializer, value_deserializer)
        config = parse_options(ConsumerConfig, "Consumer", self._shared("Consumer", options))
        made._start(self._bootstrap_servers, config, deserializers=deserializers)
        return made

    def admin(self, **options: Unpack[AdminOptions]) -> Admin:
        """An `Admin` with these options."""
        from tidelog.client.admin.admin import Admin

        made = Admin.__new__(Admin)
        made._start(
            self._bootstrap_servers,
            parse_options(AdminConfig, "Admin", self._shared("Admin", options)),
        )
        return made


def _sharing(store: ConsistencyContextStore, owner: str, options: Mapping[str, object]) -> dict[str, object]:
    """The options of a factory's client.

    Raises:
        ConfigError: they name another store.
    """
    if options.get("consistency_context_store", store) is not store:
        raise ConfigError(
            f"{owner}(consistency_context_store=…): the clients of a Factory share its own store. Make another Factory,"
            f" or tidelog.{owner} with that store"
        )
    return {**options, "consistency_context_store": store}


class AsyncFactory:
    """As `tidelog.Factory`, for the clients of `tidelog.aio`. The two kinds may share a store.

    Args:
        bootstrap_servers: of one cluster.
        store: what the clients know of its metadata's recency.
        world: network, clock, randomness; None for the machine's own.
        **options: of every client, unless that is given another.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
        store: ConsistencyContextStore | None = None,
        *,
        world: World | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        parse_options(AdminConfig, "Factory", options)
        self._options = options
        self._bootstrap_servers = bootstrap_servers if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
        self.store = ConsistencyContextStore() if store is None else store
        self._world = world

    def _shared(self, owner: str, options: Mapping[str, object]) -> dict[str, object]:
        return _sharing(self.store, owner, {**self._options, **options})

    def producer(
        self,
        *,
        key_serializer: Callable[[SentK], BytesLike] | None = None,
        value_serializer: Callable[[SentV], BytesLike] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> AsyncProducer[SentK, SentV]:
        """A `tidelog.aio.Producer` with these options."""
        from tidelog.client.async_producer import AsyncProducer

        made: AsyncProducer[SentK, SentV] = AsyncProducer.__new__(AsyncProducer)
        serializers = serializers_of(key_serializer, value_serializer)
        config = parse_options(ProducerConfig, "Producer", self._shared("Producer", options))
        made._start(self._bootstrap_servers, config, world=self._world, serializers=serializers)
        return made

    def consumer(
        self,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> AsyncConsumer[K, V]:
        """A `tidelog.aio.Consumer` with these options."""
        from tidelog.client.async_consumer import AsyncConsumer

        made: AsyncConsumer[K, V] = AsyncConsumer.__new__(AsyncConsumer)
        deserializers = deserializers_of("Consumer", key_deserializer, value_deserializer)
        config = parse_options(ConsumerConfig, "Consumer", self._shared("Consumer", options))
        made._start(
            self._bootstrap_servers,
            config,
            world=self._world,
            deserializers=deserializers,
        )
        return made

    def admin(self, **options: Unpack[AdminOptions]) -> AsyncAdmin:
        """A `tidelog.aio.Admin` with these options."""
        from tidelog.client.admin.async_admin import AsyncAdmin

        made = AsyncAdmin.__new__(AsyncAdmin)
        made._start(
            self._bootstrap_servers,
            parse_options(AdminConfig, "Admin", self._shared("Admin", options)),
            world=self._world,
        )
        return made
