"""Channels as every Trunkline process opens them. Knows options only; stubs come from trunkline.v1."""

from __future__ import annotations

import grpc.aio

from trunkline.rpc.server import MAX_MESSAGE_BYTES

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that vanished without a FIN is noticed within 15 s; idle channels send nothing.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # A restarted peer is tried again soon: the default backs off to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Nodes that share an address in turn must not share a subchannel.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
]


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to host:port; connects with its first call."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)
