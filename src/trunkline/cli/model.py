"""trunkline model."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from trunkline.model_store import ModelLocation, pull


def run_pull(model: str) -> ModelLocation:
    """Pulls with a progress bar on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"model {model}", total=None)
        return pull(model, lambda done, total: progress.update(task, completed=done, total=total))
