"""What must not drift: generated code, and the ban on deserialising code."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
GENERATED = ROOT / "src/trunkline/v1"


def test_generated_code_is_fresh(tmp_path):
    """After a change in proto/: make proto."""
    protos = sorted(str(p) for p in (ROOT / "proto/trunkline/v1").glob("*.proto"))
    outs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT / "proto"), *outs, *protos]
    subprocess.run(command, check=True)
    made = sorted((tmp_path / "trunkline/v1").iterdir())
    assert {p.name for p in made} == {p.name for p in GENERATED.glob("*_pb2*")}
    for path in made:
        assert path.read_text() == (GENERATED / path.name).read_text(), f"{path.name} is stale: make proto"


def test_nothing_here_deserialises_code():
    banned = re.compile(r"^\s*(?:import|from)\s+(?:pickle|marshal|shelve|dill|cloudpickle)\b", re.MULTILINE)
    files = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = files.stdout.split()
    assert names
    assert not [name for name in names if banned.search((ROOT / name).read_text())]
