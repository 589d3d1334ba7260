"""Leases give their blocks back exactly once, by release or by time."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trunkline.transfer.leases import LeaseTable
from trunkline.transfer.wire import done_message, parse_notification

TTL = 30.0


class LeaseMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.out: list[int] = []
        self.given: dict[str, tuple[list[int], float]] = {}
        self.table = LeaseTable(TTL, self.out.extend, self.take_back)

    def take_back(self, block_ids):
        for block_id in block_ids:
            self.out.remove(block_id)

    @rule(blocks=st.lists(st.integers(0, 9), max_size=4, unique=True))
    def grant(self, blocks):
        lease_id = f"{len(self.given):x}"
        self.table.grant(lease_id, blocks, self.now)
        self.given[lease_id] = (blocks, self.now + TTL)

    @rule(seconds=st.floats(0.1, 40))
    def time_passes(self, seconds):
        self.now += seconds
        self.table.expire(self.now)

    @rule(number=st.integers(0, 12))
    def release_even_twice_or_unknown(self, number):
        for _ in range(2):
            self.table.release(f"{number:x}")
        if f"{number:x}" in self.given:
            self.given[f"{number:x}"] = ([], 0.0)

    @rule(number=st.integers(0, 12))
    def renew(self, number):
        lease_id = f"{number:x}"
        unknown = self.table.renew([lease_id], self.now)
        blocks, end = self.given.get(lease_id, ([], 0.0))
        assert (lease_id in unknown) == (end <= self.now)
        if end > self.now:
            self.given[lease_id] = (blocks, self.now + TTL)

    @invariant()
    def just_the_live_leases_hold_blocks(self):
        self.table.check_integrity()
        expected = [i for blocks, end in self.given.values() if end > self.now for i in blocks]
        assert sorted(self.out) == sorted(expected)
        assert (self.table.next_expiry is None) == (len(self.table) == 0)


TestLeaseMachine = LeaseMachine.TestCase


def test_a_notification_is_read_and_garbage_is_not():
    done = parse_notification(done_message("ab12"))
    assert done is not None
    assert done.lease_id == "ab12"
    for garbage in (b"", b"\x80\x04.", b"TLDONE ", b"TLDONE zz", done_message("a" * 65), done_message("ab") + b"\n"):
        assert parse_notification(garbage) is None
