"""The engine's Llama against transformers on the same random weights, through paged KV."""

import json

import pytest
import torch

from trunkline.config import EngineConfig
from trunkline.engine.fingerprint import fingerprint
from trunkline.engine.models import ModelConfig
from trunkline.engine.models.rope import inverse_frequencies
from trunkline.engine.request import Sampling
from trunkline.engine.weights import load_config, load_model, weights_digest
from trunkline.errors import InvalidArgument
from trunkline.model_store import ModelLocation
from trunkline.testing.offline_engine import OfflineEngine
from trunkline.testing.oracle import Oracle
from trunkline.testing.tiny_model import VOCAB, write_tiny_llama


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def tiny(request, tmp_path_factory):
    location = write_tiny_llama(tmp_path_factory.mktemp("model"), tied=request.param)
    return load_model(location, dtype=torch.float32), Oracle(location)


def prompt(length, seed=0):
    return torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


GREEDY = Sampling(max_tokens=24, ignore_eos=True)


@pytest.mark.parametrize("chunk", [1, 7, 16, 512])
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 100])
def test_greedy_tokens_equal_the_oracles_cold_and_warm_at_any_chunk_size(tiny, chunk, length):
    model, oracle = tiny
    engine = OfflineEngine(model, EngineConfig(num_blocks=32, max_batched_tokens=chunk))
    expected = oracle.greedy(prompt(length), GREEDY.max_tokens)
    for _ in range(2):
        assert engine.generate(prompt(length), GREEDY) == expected


def test_batched_with_strangers_on_a_pool_too_small_the_tokens_stay(tiny):
    model, oracle = tiny
    engine = OfflineEngine(model, EngineConfig(num_blocks=14, max_batched_tokens=20))
    prompts = [prompt(5 + 9 * i, seed=i) for i in range(6)]
    answers = [engine.submit(p, GREEDY)[1] for p in prompts]
    engine.run()
    assert engine.scheduler.stats.preemptions > 0
    assert answers == [oracle.greedy(p, GREEDY.max_tokens) for p in prompts]


def test_seeded_sampling_depends_on_seed_and_position_alone(tiny):
    model, _ = tiny

    def draw(seed, chunk, company):
        engine = OfflineEngine(model, EngineConfig(num_blocks=64, max_batched_tokens=chunk))
        for i in range(company):
            engine.submit(prompt(9, seed=100 + i), Sampling(max_tokens=20, temperature=1.0, seed=i))
        return engine.generate(prompt(30), Sampling(max_tokens=20, temperature=1.0, seed=seed, ignore_eos=True))

    assert draw(5, 512, 0) == draw(5, 8, 3)
    assert draw(5, 512, 0) != draw(6, 512, 0)


def test_temperature_draws_follow_the_softmax(tiny):
    """Chi-squared over the first token of 2,000 seeds against the oracle's probabilities."""
    model, oracle = tiny
    engine = OfflineEngine(model, EngineConfig(num_blocks=2100, max_batched_tokens=2048, max_running=2048))
    ids = prompt(4)
    answers = [engine.submit(ids, Sampling(max_tokens=1, temperature=0.7, seed=s))[1] for s in range(2000)]
    engine.run()
    expected = torch.softmax(oracle.logits(ids)[-1].double() / 0.7, -1) * len(answers)
    counts = torch.bincount(torch.tensor([a[0] for a in answers]), minlength=VOCAB).double()
    big = expected >= 5
    pooled_e = torch.cat([expected[big], expected[~big].sum()[None]])
    pooled_c = torch.cat([counts[big], counts[~big].sum()[None]])
    chi2 = ((pooled_c - pooled_e) ** 2 / pooled_e.clamp(min=1e-9)).sum().item()
    degrees = len(pooled_e) - 1
    assert chi2 < degrees + 5 * (2 * degrees) ** 0.5


def edited(location, tmp_path, **changes):
    folder = tmp_path / "edited"
    folder.mkdir()
    for file in location.path.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return ModelLocation("edited", folder)


@pytest.fixture(scope="module")
def location(tmp_path_factory):
    return write_tiny_llama(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"num_hidden_layers": 3}, "model.layers.2"),
        ({"attention_bias": True}, "attention_bias"),
        ({"num_key_value_heads": 4}, "num_key_value_heads"),
    ],
)
def test_what_is_not_supported_is_named(location, tmp_path, changes, named):
    with pytest.raises(InvalidArgument, match=named):
        load_model(edited(location, tmp_path, **changes), dtype=torch.float32)


def test_broken_files_are_named(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and then nothing of use")
    with pytest.raises(InvalidArgument, match=r"broken\.gguf"):
        load_config(ModelLocation("broken", tmp_path / "broken.gguf"))
    with pytest.raises(InvalidArgument, match=r"neither a \.gguf"):
        load_config(ModelLocation("empty", tmp_path))


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 4.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ],
    ids=lambda s: s["rope_type"],
)
def test_rope_scalings_equal_the_oracles(location, tmp_path, scaling):
    changed = edited(location, tmp_path, rope_scaling=scaling)
    model, oracle = load_model(changed, dtype=torch.float32), Oracle(changed)
    engine = OfflineEngine(model, EngineConfig(num_blocks=32))
    assert engine.generate(prompt(200), GREEDY) == oracle.greedy(prompt(200), GREEDY.max_tokens)
    assert not torch.equal(inverse_frequencies(model.config), inverse_frequencies(load_config(location)))


def test_the_fingerprint_tells_apart_all_that_changes_kv(location, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "store"))
    config: ModelConfig = load_config(location)
    digest = weights_digest(location)
    assert digest == weights_digest(location)
    base = fingerprint(config, digest, dtype_name="float32", block_size=16)
    others = [
        fingerprint(config, digest, dtype_name="bfloat16", block_size=16),
        fingerprint(config, digest, dtype_name="float32", block_size=32),
        fingerprint(config, "0" * 64, dtype_name="float32", block_size=16),
        fingerprint(
            load_config(edited(location, tmp_path, rope_theta=5e5)), digest, dtype_name="float32", block_size=16
        ),
    ]
    assert len({base, *others}) == 5
