"""A whole cluster as processes of this machine: Valkey, router, prefill and decode nodes. For up, demo and tests.

Knows processes and their order. Each has a log file in the run folder; none outlives this process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from trunkline.embedded_redis import EmbeddedValkey
from trunkline.errors import Unavailable
from trunkline.model_store import DEFAULT_MODEL
from trunkline.processes import die_with_parent
from trunkline.v1 import inference_pb2, inference_pb2_grpc

POLL_S = 0.05
LOG_TAIL = 12


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    prefill: int = 2
    decode: int = 1
    model: str = DEFAULT_MODEL
    #: None starts an embedded Valkey.
    redis_url: str | None = None
    dtype: str = "auto"
    #: Of the router; 0 takes a free one.
    port: int = 50051
    #: Threads of each node. None shares the cores among the nodes.
    threads: int | None = None
    #: Further options of every node process, as on the command line.
    node_options: tuple[str, ...] = ()
    #: Where logs go. None: a temporary folder, removed at the end.
    run_dir: Path | None = None
    ready_timeout_s: float = 120.0

    def threads_per_node(self) -> int:
        return self.threads or max(1, (os.cpu_count() or 1) // max(1, self.prefill + self.decode))


@dataclass
class Child:
    """One process of the cluster."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)
    reported: bool = False

    def start(self, env: dict[str, str]) -> None:
        self.reported = False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, preexec_fn=die_with_parent
            )

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL:])


class LocalCluster:
    """A context manager: up on entry (once ready), gone on exit."""

    def __init__(self, config: ClusterConfig, on_progress: Callable[[str], None] = lambda text: None) -> None:
        self.config = config
        self._on_progress = on_progress
        self._temporary = config.run_dir is None
        self.run_dir = config.run_dir or Path(tempfile.mkdtemp(prefix="trunkline-"))
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._valkey = None if config.redis_url else EmbeddedValkey(self.run_dir)
        self.children: dict[str, Child] = {}
        self.address = ""
        self.redis_url = config.redis_url or ""

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything and waits until requests can be served. Raises Unavailable with the log of what failed."""
        if self._valkey is not None:
            self._on_progress("starting Valkey")
            self.redis_url = self._valkey.start()
        for i in range(self.config.prefill):
            self._add_node("prefill", i)
        for i in range(self.config.decode):
            self._add_node("decode", i)
        port = self.config.port or _free_port()
        self.address = f"127.0.0.1:{port}"
        self._add("router", ["router", "--listen", self.address, *self._common()])
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until the router is healthy and knows every node that was started."""
        deadline = time.monotonic() + self.config.ready_timeout_s
        with grpc.insecure_channel(self.address) as channel:
            while True:
                for child in self.dead():
                    raise Unavailable(f"{child.name} ended with status {child.process.returncode}:\n{child.tail()}")
                known = _known_nodes(channel)
                wanted = self.config.prefill + self.config.decode
                self._on_progress(f"{known} of {wanted} nodes are up")
                if known >= wanted and _healthy(channel):
                    return
                if time.monotonic() > deadline:
                    raise Unavailable(f"not ready within {self.config.ready_timeout_s:.0f} s; logs in {self.run_dir}")
                time.sleep(POLL_S)

    def dead(self) -> list[Child]:
        return [child for child in self.children.values() if child.process.poll() is not None]

    def kill(self, name: str) -> None:
        """As a crash would."""
        self.children[name].process.kill()
        self.children[name].process.wait()

    def restart(self, name: str) -> None:
        """Starts a process that has ended again, under the same name."""
        self.children[name].start(self._env(name))

    def stop(self, grace_s: float = 35.0) -> None:
        """Ends everything in order: router, nodes, Valkey."""
        nodes = [child for name, child in self.children.items() if name != "router"]
        router = [self.children["router"]] if "router" in self.children else []
        for group in (router, nodes):
            for child in group:
                child.process.send_signal(signal.SIGTERM)
            for child in group:
                _wait_or_kill(child, grace_s)
        if self._valkey is not None:
            self._valkey.stop()
        if self._temporary:
            shutil.rmtree(self.run_dir, ignore_errors=True)

    def kill_all(self) -> None:
        for child in self.children.values():
            child.process.kill()

    def state(self, *, verify: bool = False) -> inference_pb2.ClusterStateResponse:
        with grpc.insecure_channel(self.address) as channel:
            request = inference_pb2.ClusterStateRequest(verify=verify)
            return inference_pb2_grpc.InferenceStub(channel).ClusterState(request, timeout=10)

    # -- inside

    def _common(self) -> list[str]:
        return ["--redis-url", self.redis_url, "--model", self.config.model]

    def _add_node(self, role: str, i: int) -> None:
        name = f"{role}-{i}"
        options = ["--dtype", self.config.dtype, "--threads", str(self.config.threads_per_node())]
        self._add(name, [role, "--name", name, *self._common(), *options, *self.config.node_options])

    def _add(self, name: str, arguments: list[str]) -> None:
        self._on_progress(f"starting {name}")
        child = Child(name, [sys.executable, "-m", "trunkline.cli", *arguments], self.run_dir / f"{name}.log")
        child.start(self._env(name))
        self.children[name] = child

    def _env(self, name: str) -> dict[str, str]:
        threads = "1" if name == "router" else str(self.config.threads_per_node())
        return {**os.environ, "OMP_NUM_THREADS": threads, "GRPC_VERBOSITY": "ERROR"}


def _wait_or_kill(child: Child, grace_s: float) -> None:
    try:
        child.process.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _healthy(channel: grpc.Channel) -> bool:
    try:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1)
    except grpc.RpcError:
        return False
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def _known_nodes(channel: grpc.Channel) -> int:
    try:
        stub = inference_pb2_grpc.InferenceStub(channel)
        state = stub.ClusterState(inference_pb2.ClusterStateRequest(), timeout=2)
    except grpc.RpcError:
        return 0
    return sum(not node.unusable_reason for node in state.nodes)
