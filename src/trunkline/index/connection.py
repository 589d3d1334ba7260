"""Redis clients as the index uses them."""

from __future__ import annotations

from typing import Any

import redis.asyncio


def connect(redis_url: str) -> Any:
    """An asyncio client that answers in bytes and RESP2 shapes; nothing is sent yet.

    Typed Any: redis-py's annotations leave open whether a reply is text or bytes.
    """
    return redis.asyncio.Redis.from_url(redis_url, protocol=2, socket_timeout=5.0, socket_connect_timeout=2.0)
