"""The NIXL transport between real processes: right bytes, or a clear error, whatever happens to the peer."""

import json
import subprocess
import sys

import pytest
import torch

from trunkline.transfer.contract import PeerInfo, TransferError
from trunkline.transfer.nixl_transport import NixlTransport

BLOCKS, BLOCK_BYTES = 64, 368_640


class HolderProcess:
    """trunkline.testing.kv_peer: block i is full of the byte i."""

    def __init__(self):
        command = [sys.executable, "-m", "trunkline.testing.kv_peer", str(BLOCKS), str(BLOCK_BYTES)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = json.loads(self._line())
        self.info = PeerInfo(node="peer", **{**said, "agent_metadata": bytes.fromhex(said["agent_metadata"])})

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def holders():
    started = []

    def start():
        holder = HolderProcess()
        started.append(holder)
        holder.tell("serve on")
        return holder

    yield start
    for holder in started:
        holder.kill()


@pytest.fixture
async def reader():
    memory = torch.full((BLOCKS * BLOCK_BYTES,), 255, dtype=torch.uint8)
    transport = NixlTransport("reader", memory, BLOCK_BYTES)
    yield transport, memory.view(BLOCKS, BLOCK_BYTES)
    await transport.close()


async def test_blocks_arrive_where_they_are_wanted_and_nowhere_else(reader, holders):
    transport, memory = reader
    holder = holders()
    await transport.connect(holder.info)
    await transport.read(holder.info.epoch, [7, 3, 60], [0, 9, 5], timeout_s=5)
    assert [memory[i].unique().tolist() for i in (0, 9, 5)] == [[7], [3], [60]]
    untouched = [i for i in range(BLOCKS) if i not in (0, 9, 5)]
    assert memory[untouched].unique().tolist() == [255]


@pytest.mark.parametrize("ids", [[], [-1], [BLOCKS]])
async def test_ids_outside_either_memory_are_refused(reader, holders, ids):
    transport, _ = reader
    holder = holders()
    await transport.connect(holder.info)
    with pytest.raises(TransferError, match="block ids"):
        await transport.read(holder.info.epoch, ids, [0] * len(ids), timeout_s=5)
    with pytest.raises(TransferError, match="block ids"):
        await transport.read(holder.info.epoch, [0] * len(ids), ids, timeout_s=5)


async def test_a_dead_peer_is_an_error_within_the_timeout_and_its_next_life_is_read(reader, holders):
    transport, memory = reader
    for _ in range(5):
        holder = holders()
        await transport.connect(holder.info)
        await transport.read(holder.info.epoch, [1], [0], timeout_s=5)
        holder.kill()
        with pytest.raises(TransferError):
            await transport.read(holder.info.epoch, list(range(BLOCKS)), list(range(BLOCKS)), timeout_s=5)
        await transport.disconnect(holder.info.epoch)
        assert memory[0].unique().tolist() == [1]
        with pytest.raises(TransferError, match="no connection"):
            await transport.read(holder.info.epoch, [0], [0], timeout_s=5)
