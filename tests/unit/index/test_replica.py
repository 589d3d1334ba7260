"""The replica's books against a plain model of sets."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trunkline.index.digest import EMPTY, toggled
from trunkline.index.records import NodeRecord, parse_load, parse_record
from trunkline.index.replica import Replica


def h(i: int) -> bytes:
    return sha256(bytes([i])).digest()


def test_batches_apply_in_order_and_once():
    replica = Replica()
    replica.load_snapshot("a", 5, [h(1)])
    assert replica.apply("a", 6, [h(2)], [])
    assert replica.apply("a", 6, [h(2)], [h(1)]), "a repeat is fine and changes nothing"
    assert not replica.apply("a", 8, [h(3)], []), "a gap asks for a resync"
    assert not replica.apply("b", 1, [h(3)], []), "so does an owner never loaded"
    assert replica.held("a") == {h(1), h(2)}


def test_a_removal_is_not_undone_by_a_late_store():
    replica = Replica()
    replica.load_snapshot("a", 4, [h(1)])
    assert replica.apply("a", 5, [], [h(1)])
    assert replica.apply("a", 4, [h(1)], [])
    assert replica.held("a") == frozenset()


def test_a_new_life_owes_nothing_to_the_old_one():
    replica = Replica()
    replica.load_snapshot("old", 50, [h(1), h(2)])
    replica.drop("old")
    replica.load_snapshot("new", 0, [])
    assert replica.longest_prefixes([h(1)]) == {}
    assert replica.entries == 0


def test_digests_tell_a_lost_batch():
    replica = Replica()
    replica.load_snapshot("a", 1, [h(1), h(2)])
    assert replica.agrees("a", 1, toggled(EMPTY, [h(2), h(1)]))
    assert not replica.agrees("a", 1, toggled(EMPTY, [h(1)]))
    assert replica.agrees("a", 2, b"whatever"), "nothing can be said at another number"


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 40)), st.integers(0, 40))
def test_every_owners_longest_prefix_in_one_call(lengths, asked):
    chain = [h(i) for i in range(40)]
    replica = Replica()
    for owner, length in lengths.items():
        replica.load_snapshot(owner, 0, chain[:length])
    expected = {owner: min(length, asked) for owner, length in lengths.items() if min(length, asked)}
    assert replica.longest_prefixes(chain[:asked]) == expected


class ReplicaMachine(RuleBasedStateMachine):
    """Random batches, some lost or repeated: where the replica says all is well, it equals the truth."""

    def __init__(self):
        super().__init__()
        self.replica = Replica()
        self.truth: set[bytes] = set()
        self.number = 0
        self.replica.load_snapshot("a", 0, [])

    @rule(
        stored=st.sets(st.integers(0, 9)),
        removed=st.sets(st.integers(0, 9)),
        fate=st.sampled_from(["arrives", "arrives twice", "is lost"]),
    )
    def batch(self, stored, removed, fate):
        stored -= removed
        self.number += 1
        self.truth = (self.truth - {h(i) for i in removed}) | {h(i) for i in stored}
        for _ in range({"arrives": 1, "arrives twice": 2, "is lost": 0}[fate]):
            if not self.replica.apply("a", self.number, [h(i) for i in stored], [h(i) for i in removed]):
                self.replica.load_snapshot("a", self.number, self.truth)

    @invariant()
    def agrees_only_with_the_truth(self):
        self.replica.check_integrity()
        if self.replica.sequence("a") == self.number:
            assert self.replica.agrees("a", self.number, toggled(EMPTY, self.truth))
            assert self.replica.held("a") == self.truth


TestReplicaMachine = ReplicaMachine.TestCase


@given(st.binary(max_size=50) | st.text(max_size=50).map(str.encode) | st.just(b'{"name": 3, "epoch": "x"}'))
def test_garbage_in_redis_is_no_record_and_no_load(raw):
    assert parse_record(raw) is None
    assert parse_load(raw) is None


def test_a_record_under_another_epochs_name_is_refused():
    record = NodeRecord(
        name="n",
        role="prefill",
        epoch="a" * 32,
        address="h:1",
        model="m",
        fingerprint="ab" * 32,
        block_size=16,
        block_bytes=1,
        num_blocks=1,
        max_model_len=1,
        vocab_size=1,
        dtype="float32",
        protocol=1,
        started_at=0.0,
    )
    raw = record.model_dump_json().encode()
    assert parse_record(raw, "a" * 32) == record
    assert parse_record(raw, "b" * 32) is None
