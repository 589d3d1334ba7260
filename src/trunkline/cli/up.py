"""trunkline up."""

from __future__ import annotations

import signal
import time

from rich.console import Console

from trunkline.cli.model import run_pull
from trunkline.cluster import ClusterConfig, LocalCluster

WATCH_S = 0.2


class _Stop(Exception):
    """SIGTERM or Ctrl-C."""


def run_up(config: ClusterConfig) -> None:
    """Stays until Ctrl-C or SIGTERM. A second one kills."""
    console = Console()
    run_pull(config.model)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _raise_stop)
    cluster = None
    try:
        with console.status("starting") as line:
            cluster = LocalCluster(config, lambda text: line.update(text))
            cluster.start()
        console.print(f"[green]ready[/green] at {cluster.address}; logs in {cluster.run_dir}", highlight=False)
        console.print(f'try: trunkline generate "Hello" --router {cluster.address}', highlight=False)
        while True:
            _report_deaths(cluster, console)
            time.sleep(WATCH_S)
    except _Stop:
        console.print("stopping (Ctrl-C again kills)")
    finally:
        if cluster is not None:
            _stop(cluster)


def _raise_stop(number: int, frame: object) -> None:
    raise _Stop


def _report_deaths(cluster: LocalCluster, console: Console) -> None:
    for child in cluster.dead():
        if not child.reported:
            child.reported = True
            console.print(f"[red]{child.name} ended[/red] with status {child.process.returncode}; its last lines:")
            console.print(child.tail(), markup=False, highlight=False)


def _stop(cluster: LocalCluster) -> None:
    try:
        cluster.stop()
    except _Stop:
        cluster.kill_all()
        cluster.stop()
