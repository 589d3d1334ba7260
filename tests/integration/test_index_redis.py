"""Publisher and follower over a real Valkey: what nodes hold, routers know, whatever happens between."""

import asyncio
import uuid
from hashlib import sha256

import pytest
import redis.asyncio

from trunkline.embedded_redis import EmbeddedValkey
from trunkline.errors import InvalidArgument, Unavailable
from trunkline.index.follower import IndexFollower
from trunkline.index.publisher import IndexPublisher
from trunkline.index.records import REGISTRY, NodeLoad, NodeRecord

LOAD = NodeLoad(
    running=1,
    waiting=0,
    queued_tokens=7,
    blocks_free=9,
    blocks_cached=0,
    blocks_referenced=1,
    blocks_leased=0,
    leases=0,
)


def h(i: int) -> bytes:
    return sha256(i.to_bytes(4)).digest()


def record(name="prefill-0", started_at=1.0) -> NodeRecord:
    return NodeRecord(
        name=name,
        role="prefill",
        epoch=uuid.uuid4().hex,
        address="127.0.0.1:1",
        model="m",
        fingerprint="ab" * 32,
        block_size=16,
        block_bytes=1024,
        num_blocks=10,
        max_model_len=100,
        vocab_size=300,
        dtype="float32",
        protocol=1,
        started_at=started_at,
    )


@pytest.fixture
def valkey(tmp_path):
    server = EmbeddedValkey(tmp_path)
    server.start()
    yield server
    server.stop()


class Rig:
    """One follower and any number of publishers, all stopped at the end."""

    def __init__(self, url):
        self.url = url
        self.follower = IndexFollower(url, dead_after_s=1.0)
        self.publishers: list[IndexPublisher] = []

    async def node(self, **kwargs) -> tuple[IndexPublisher, NodeRecord]:
        mine = record(**kwargs)
        publisher = IndexPublisher(self.url, mine, lambda: LOAD, heartbeat_s=0.2, live_ttl_s=0.8)
        await publisher.start()
        self.publishers.append(publisher)
        return publisher, mine

    async def holds(self, mine, hashes, timeout_s=2.0):
        wanted = frozenset(hashes)
        ok = await self.follower.wait_for(
            lambda: mine.epoch in self.follower.nodes and self.follower.replica.held(mine.epoch) == wanted, timeout_s
        )
        self.follower.replica.check_integrity()
        assert ok, (self.follower.nodes, len(self.follower.replica.held(mine.epoch)))

    async def gone(self, mine, timeout_s=2.0):
        assert await self.follower.wait_for(lambda: mine.epoch not in self.follower.nodes, timeout_s)
        assert self.follower.replica.held(mine.epoch) == frozenset()


@pytest.fixture
async def rig(valkey):
    rig = Rig(valkey.url)
    await rig.follower.start()
    yield rig
    for publisher in rig.publishers:
        await publisher.stop()
    await rig.follower.stop()


async def test_what_two_nodes_hold_is_known(rig):
    one, first = await rig.node()
    two, second = await rig.node(name="prefill-1")
    one.stored([h(1), h(2), h(3)])
    two.stored([h(1)])
    one.removed([h(3)])
    await rig.holds(first, [h(1), h(2)])
    await rig.holds(second, [h(1)])
    assert rig.follower.replica.longest_prefixes([h(1), h(2), h(3)]) == {first.epoch: 2, second.epoch: 1}
    assert rig.follower.nodes[first.epoch].load == LOAD


async def test_a_router_that_comes_later_starts_from_the_sets(rig, valkey):
    publisher, mine = await rig.node()
    publisher.stored([h(i) for i in range(500)])
    await rig.holds(mine, [h(i) for i in range(500)])
    late = IndexFollower(valkey.url)
    await late.start()
    assert late.replica.held(mine.epoch) == {h(i) for i in range(500)}
    await late.stop()


async def test_a_node_that_leaves_is_gone_with_its_keys(rig, valkey):
    publisher, mine = await rig.node()
    publisher.stored([h(1)])
    await rig.holds(mine, [h(1)])
    rig.publishers.remove(publisher)
    await publisher.stop()
    await rig.gone(mine)
    async with redis.asyncio.Redis.from_url(valkey.url) as client:
        assert await client.keys("*") == [b"tl:nodes"]


async def test_a_node_that_falls_silent_is_gone_and_swept(rig, valkey):
    publisher, mine = await rig.node()
    publisher.stored([h(1)])
    await rig.holds(mine, [h(1)])
    rig.publishers.remove(publisher)
    publisher._writer.cancel()  # as kill -9 would
    await rig.gone(mine, timeout_s=3.0)
    async with redis.asyncio.Redis.from_url(valkey.url) as client:
        while await client.exists(mine.held_key):
            await asyncio.sleep(0.02)


async def test_a_new_life_under_the_same_name_replaces_the_old_one_at_once(rig):
    old, before = await rig.node(started_at=1.0)
    old.stored([h(i) for i in range(50)])
    await rig.holds(before, [h(i) for i in range(50)])
    _, after = await rig.node(started_at=2.0)
    await rig.gone(before)
    await rig.holds(after, [])


async def test_a_suspect_node_is_cleared_by_its_next_heartbeat(rig):
    _, mine = await rig.node()
    await rig.holds(mine, [])
    rig.follower.suspect(mine.epoch)
    assert rig.follower.nodes[mine.epoch].suspect
    assert await rig.follower.wait_for(lambda: not rig.follower.nodes[mine.epoch].suspect, 2.0)


@pytest.mark.parametrize("batches", [["lost"], ["repeated"], ["foreign", "lost"]])
async def test_lost_repeated_and_foreign_batches_are_noticed(rig, valkey, batches):
    publisher, mine = await rig.node()
    publisher.stored([h(1)])
    await rig.holds(mine, [h(1)])
    async with redis.asyncio.Redis.from_url(valkey.url) as client:
        number = int(await client.get(mine.sequence_key) or 0)
        for kind in batches:
            if kind == "lost":  # the set and its number moved, the stream did not tell
                await client.sadd(mine.held_key, h(2))
                publisher._held.add(h(2))
                publisher._written.add(h(2))
                publisher._digest = bytes(a ^ b for a, b in zip(publisher._digest, h(2), strict=True))
                await client.set(mine.sequence_key, number + 1)
                publisher._sequence = number + 1
            elif kind == "repeated":
                await client.xadd(mine.events_key, {"n": number, "s": h(1), "r": b""})
            else:
                await client.xadd(mine.events_key, {"n": "x", "junk": b"\x80\x04."})
    publisher.stored([h(3)])
    await rig.holds(mine, publisher._held)


async def test_a_flushed_redis_is_written_anew(rig, valkey):
    publisher, mine = await rig.node()
    publisher.stored([h(1), h(2)])
    await rig.holds(mine, [h(1), h(2)])
    async with redis.asyncio.Redis.from_url(valkey.url) as client:
        await client.flushall()
        publisher.stored([h(3)])
        await rig.holds(mine, [h(1), h(2), h(3)])
        while await client.scard(mine.held_key) != 3:
            await asyncio.sleep(0.02)


async def test_redis_killed_and_restarted_empty_loses_nothing_that_nodes_know(rig, valkey):
    publisher, mine = await rig.node()
    publisher.stored([h(1), h(2)])
    await rig.holds(mine, [h(1), h(2)])
    valkey.kill()
    assert await rig.follower.wait_for(lambda: not rig.follower.healthy, 3.0)
    publisher.stored([h(3)])
    publisher.removed([h(2)])
    assert mine.epoch in rig.follower.nodes, "routing goes on with what is known"
    assert rig.follower.replica.held(mine.epoch) == {h(1), h(2)}
    valkey.start()
    await rig.holds(mine, [h(1), h(3)], timeout_s=3.0)


async def test_garbage_in_redis_is_counted_and_harmless(rig, valkey, tmp_path):
    marker = tmp_path / "executed"
    evil = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    publisher, mine = await rig.node()
    async with redis.asyncio.Redis.from_url(valkey.url) as client:
        await client.hset(REGISTRY, mapping={b"\xff\xfe": evil, b"a" * 32: evil, b"b" * 32: b"{}"})
        await client.sadd(mine.held_key, evil, b"short")
        await client.xadd("tl:nodes", {"epoch": evil})
        await client.xadd(mine.events_key, {"n": evil, "load": evil})
    publisher.stored([h(1)])
    assert await rig.follower.wait_for(lambda: h(1) in rig.follower.replica.held(mine.epoch), 3.0)
    assert rig.follower.ignored >= 3
    assert not marker.exists()


async def test_without_redis_a_start_says_so(tmp_path):
    url = f"unix://{tmp_path}/nobody.sock"
    with pytest.raises(Unavailable, match="Redis does not answer"):
        await IndexFollower(url).start()
    with pytest.raises(Unavailable, match="Redis does not answer"):
        await IndexPublisher(url, record(), lambda: LOAD).start()


def test_a_socket_path_too_long_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="run-dir"):
        EmbeddedValkey(tmp_path / ("x" * 100))
