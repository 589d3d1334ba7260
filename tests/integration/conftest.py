"""A real cluster for the tests of this folder: real model, Valkey, NIXL, processes."""

import pytest

from trunkline import model_store
from trunkline.cluster import ClusterConfig, LocalCluster


@pytest.fixture(scope="module")
def cluster():
    model_store.pull(model_store.DEFAULT_MODEL)
    config = ClusterConfig(prefill=2, decode=1, dtype="float32", port=0, node_options=("--num-blocks", "1200"))
    with LocalCluster(config) as running:
        yield running
