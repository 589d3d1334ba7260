"""KvTransport over NIXL: one-sided reads of registered memory, by UCX through whatever connects the two processes.

The only file that knows nixl. One worker thread owns the agent and makes every call into it, so nothing of NIXL or
UCX needs to be thread-safe. It sleeps on its command queue while nothing moves; while leases are out or reads are
in flight it wakes about once a millisecond. NIXL's own progress thread is off: it spins, and pulls are slower with
it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from trunkline.transfer.contract import PeerInfo, TransferError

# UCX logs a line for every peer that dies, which here is an everyday event.
os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")

log = logging.getLogger(__name__)

SERVING_POLL_S = 0.001
READING_POLL_S = 0.0003


@dataclass
class _Read:
    handle: Any
    epoch: str
    deadline: float
    done: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop
    #: Why it is being stopped, once it is.
    failure: str = ""

    def finish(self) -> None:
        self.loop.call_soon_threadsafe(_settle, self.done, self.failure)


def _settle(future: asyncio.Future[None], failure: str) -> None:
    if future.done():
        return
    if failure:
        future.set_exception(TransferError(failure))
    else:
        future.set_result(None)


class NixlTransport:
    """See KvTransport. `name` must be unique among all peers' lives: the node's epoch."""

    def __init__(
        self, name: str, memory: Tensor, block_bytes: int, on_notify: Callable[[bytes], None] = lambda message: None
    ) -> None:
        """Registers `memory` (contiguous, host). `on_notify` is called on the worker thread. Raises TransferError."""
        from nixl._api import nixl_agent, nixl_agent_config

        self._block_bytes = block_bytes
        self._memory = memory
        self._on_notify = on_notify
        self.base_address = memory.data_ptr()
        try:
            self._agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
            region = [(self.base_address, memory.nbytes, 0, "")]
            self._registered = self._agent.register_memory(region, "DRAM")
            self.agent_metadata = bytes(self._agent.get_agent_metadata())
        except Exception as error:
            raise TransferError(f"NIXL could not be set up: {error}") from error
        self._peers: dict[str, PeerInfo] = {}
        #: Peers to be removed once the last read from them has ended.
        self._departing: set[str] = set()
        self._reads: list[_Read] = []
        self._serving = False
        self._closing = False
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="nixl", daemon=True)
        self._thread.start()

    # -- on the event loop

    async def connect(self, peer: PeerInfo) -> None:
        await self._call(lambda: self._add_peer(peer))

    async def disconnect(self, epoch: str) -> None:
        await self._call(lambda: self._remove_peer(epoch))

    async def read(self, epoch: str, remote_ids: Sequence[int], local_ids: Sequence[int], *, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        deadline = time.monotonic() + timeout_s
        remote, local = list(remote_ids), list(local_ids)
        self._commands.put(lambda: self._begin(epoch, remote, local, deadline, done, loop))
        await _uncancellable(done)

    async def notify(self, epoch: str, message: bytes) -> None:
        await self._call(lambda: self._notify(epoch, message))

    def set_serving(self, active: bool) -> None:
        def change() -> None:
            self._serving = active

        self._commands.put(change)

    async def close(self) -> None:
        """Ends the worker after the reads in flight have ended or were given up."""

        def change() -> None:
            self._closing = True

        self._commands.put(change)
        await asyncio.to_thread(self._thread.join)

    async def _call(self, action: Callable[[], None]) -> None:
        """Runs `action` on the worker; its TransferError comes back."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def run() -> None:
            failure = ""
            try:
                action()
            except Exception as error:
                failure = str(error) or type(error).__name__
            loop.call_soon_threadsafe(_settle, done, failure)

        self._commands.put(run)
        await done

    # -- on the worker thread

    def _work(self) -> None:
        while not self._closing:
            self._run_commands()
            self._poll_reads()
            if self._serving:
                self._poll_notifications()
        for read in self._reads:
            read.failure = "this node is shutting down"
            read.finish()
        self._reads.clear()
        for epoch in list(self._peers):
            self._remove_peer(epoch)
        self._agent.deregister_memory(self._registered)

    def _run_commands(self) -> None:
        """Waits for a command as long as nothing has to be polled, then runs all that are there."""
        wait = READING_POLL_S if self._reads else SERVING_POLL_S if self._serving else None
        try:
            self._commands.get(timeout=wait)()
            while True:
                self._commands.get_nowait()()
        except queue.Empty:
            pass

    def _add_peer(self, peer: PeerInfo) -> None:
        self._departing.discard(peer.epoch)
        if peer.epoch in self._peers:
            return
        name = self._agent.add_remote_agent(peer.agent_metadata)
        name = name.decode() if isinstance(name, bytes) else name
        if name != peer.epoch:
            self._agent.remove_remote_agent(name)
            raise TransferError(f"the agent at {peer.node} calls itself {name}, not {peer.epoch}")
        self._peers[peer.epoch] = peer

    def _remove_peer(self, epoch: str) -> None:
        if any(read.epoch == epoch for read in self._reads):
            self._departing.add(epoch)
        elif self._peers.pop(epoch, None) is not None:
            self._departing.discard(epoch)
            self._agent.remove_remote_agent(epoch)

    def _notify(self, epoch: str, message: bytes) -> None:
        if epoch not in self._peers:
            raise TransferError(f"no connection to epoch {epoch}")
        self._agent.send_notif(epoch, message)

    def _begin(
        self,
        epoch: str,
        remote_ids: list[int],
        local_ids: list[int],
        deadline: float,
        done: asyncio.Future[None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        read = _Read(None, epoch, deadline, done, loop)
        try:
            peer = self._peers.get(epoch)
            if peer is None:
                raise TransferError(f"no connection to epoch {epoch}")
            local = self._descriptors(self.base_address, self._block_bytes, local_ids, self._num_blocks)
            remote = self._descriptors(peer.base_address, peer.block_bytes, remote_ids, peer.num_blocks)
            read.handle = self._agent.initialize_xfer("READ", local, remote, epoch)
            state = self._agent.transfer(read.handle)
        except Exception as error:
            read.failure = str(error) or type(error).__name__
            state = "ERR"
        if state == "PROC":
            self._reads.append(read)
        else:
            self._end(read, state)

    @property
    def _num_blocks(self) -> int:
        return self._memory.nbytes // self._block_bytes

    def _descriptors(self, base: int, nbytes: int, ids: list[int], limit: int) -> Any:
        if not ids or min(ids) < 0 or max(ids) >= limit:
            raise TransferError(f"block ids must be from 0 to {limit - 1}")
        rows = np.empty((len(ids), 3), dtype=np.uint64)
        rows[:, 0] = base + np.asarray(ids, dtype=np.uint64) * np.uint64(nbytes)
        rows[:, 1] = nbytes
        rows[:, 2] = 0
        return self._agent.get_xfer_descs(rows, "DRAM")

    def _poll_reads(self) -> None:
        now = time.monotonic()
        for read in list(self._reads):
            state = self._state(read)
            if state == "PROC" and now > read.deadline:
                read.failure = read.failure or "timed out"
                if not self._stopped(read):
                    continue
                state = "ERR"
            if state != "PROC":
                self._reads.remove(read)
                self._end(read, state)
                if read.epoch in self._departing:
                    self._remove_peer(read.epoch)

    def _state(self, read: _Read) -> str:
        try:
            return self._agent.check_xfer_state(read.handle)
        except Exception as error:
            read.failure = read.failure or str(error) or type(error).__name__
            return "ERR"

    def _stopped(self, read: _Read) -> bool:
        """Asks NIXL to drop a transfer in flight.

        False while it may still write; it is asked again at the next poll.
        """
        try:
            read.handle.release()
        except Exception:
            return False
        return True

    def _end(self, read: _Read, state: str) -> None:
        if state == "ERR":
            read.failure = read.failure or "the peer is gone"
        else:
            read.failure = ""
        if read.handle is not None and not self._stopped(read):
            log.warning("a finished transfer's handle could not be released")
        read.finish()

    def _poll_notifications(self) -> None:
        try:
            arrived = self._agent.get_new_notifs()
        except Exception:
            log.exception("notifications could not be read")
            return
        for messages in arrived.values():
            for message in messages:
                self._on_notify(message if isinstance(message, bytes) else message.encode())


async def _uncancellable(future: asyncio.Future[None]) -> None:
    """Waits for `future` to the end; a cancellation that came meanwhile is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
        except TransferError:
            break
    if cancelled is not None:
        future.exception()
        raise cancelled
    future.result()
