"""TLB1 hashes: the published vectors, chaining, and that no two different keys meet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.cache.block_hash import ExtraKeyKind, hash_blocks, seed_hash

VECTORS = json.loads((Path(__file__).parent / "block_hash_v1.json").read_text())
KINDS = VECTORS["extra_key_kinds"]


def extra_keys_of(case):
    return {int(i): [(KINDS[k], bytes.fromhex(v)) for k, v in pairs] for i, pairs in case["extra_keys"].items()}


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda c: c["name"])
def test_vectors(case):
    seed = seed_hash(case["fingerprint"].encode())
    hashes = hash_blocks(case["tokens"], case["block_size"], seed, extra_keys_of(case))
    assert [h.hex() for h in hashes] == case["hashes"]


def test_kinds_are_the_published_ones():
    assert {k.name.lower(): int(k) for k in ExtraKeyKind} == KINDS


tokens = st.lists(st.integers(0, 2**32 - 1), max_size=70)
keys = st.dictionaries(st.integers(0, 3), st.lists(st.tuples(st.integers(1, 4), st.binary(max_size=4)), max_size=3))


@given(tokens, st.integers(1, 20), st.binary(max_size=8), keys)
def test_a_prefix_has_the_prefix_of_the_hashes(ids, size, fingerprint, extra):
    seed = seed_hash(fingerprint)
    whole = hash_blocks(ids, size, seed, extra)
    assert len(whole) == len(ids) // size
    for cut in range(0, len(ids), size):
        assert hash_blocks(ids[:cut], size, seed, extra) == whole[: cut // size]


@given(tokens, st.integers(1, 20), st.integers(0, 3))
def test_a_chain_can_be_continued_from_its_last_hash(ids, size, cut):
    seed = seed_hash(b"f")
    whole = hash_blocks(ids, size, seed)
    cut = min(cut, len(whole))
    rest = hash_blocks(ids[cut * size :], size, whole[cut - 1] if cut else seed)
    assert whole == whole[:cut] + rest


@given(st.lists(st.tuples(tokens, st.integers(1, 8), st.binary(max_size=3), keys), min_size=2, max_size=8))
def test_different_content_never_shares_a_hash(contents):
    """One root hash for two different (fingerprint, size, tokens, keys) would cross tenants or adapters."""
    seen = {}
    for ids, size, fingerprint, extra in contents:
        hashes = hash_blocks(ids, size, seed_hash(fingerprint), extra)
        for i, block_hash in enumerate(hashes):
            before = {j: pairs for j, pairs in extra.items() if j <= i and pairs}
            identity = (fingerprint, size, tuple(ids[: (i + 1) * size]), repr(sorted(before.items())))
            assert seen.setdefault(block_hash, identity) == identity


def test_a_salt_named_like_an_adapter_and_moved_bytes_differ():
    ids, seed = list(range(16)), seed_hash(b"m")
    salt, lora = ExtraKeyKind.CACHE_SALT, ExtraKeyKind.LORA
    variants = [
        {},
        {0: [(salt, b"X")]},
        {0: [(lora, b"X")]},
        {0: [(salt, b"ab"), (lora, b"c")]},
        {0: [(salt, b"a"), (lora, b"bc")]},
        {0: [(salt, b"")]},
    ]
    roots = [hash_blocks(ids, 16, seed, extra)[0] for extra in variants]
    assert len(set(roots)) == len(roots)


def test_nothing_of_the_process_enters_a_hash():
    code = (
        "from trunkline.cache.block_hash import *;"
        "print(hash_blocks(list(range(32)),16,seed_hash('é'.encode()))[1].hex())"
    )
    outputs = set()
    for seed, locale in (("0", "C"), ("1", "C.UTF-8"), ("12345", "POSIX")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale}
        outputs.add(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)
    assert len(outputs) == 1


@pytest.mark.parametrize("bad", [-1, 2**32])
def test_an_id_that_is_no_u32_is_refused(bad):
    with pytest.raises(OverflowError):
        hash_blocks([bad] * 16, 16, seed_hash(b""))
