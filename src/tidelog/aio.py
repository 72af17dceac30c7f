"""The clients for event loops, under the names of the blocking ones: `from tidelog import aio; aio.Producer(...)`."""

from __future__ import annotations

from tidelog.client.admin.async_admin import AsyncAdmin as Admin
from tidelog.client.async_consumer import AsyncConsumer as Consumer
from tidelog.client.async_producer import AsyncProducer as Producer
from tidelog.client.async_transaction import AsyncResumedTransaction as ResumedTransaction
from tidelog.client.async_transaction import AsyncTransaction as Transaction
from tidelog.client.factory import AsyncFactory as Factory

__all__ = ["Admin", "Consumer", "Factory", "Producer", "ResumedTransaction", "Transaction"]
