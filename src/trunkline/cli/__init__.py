"""The `trunkline` command. Heavy imports happen inside the commands, so that --help is quick."""

from __future__ import annotations

import sys

from trunkline.errors import TrunklineError


def main() -> None:
    """Entry point: errors become one red line and exit status 1; Ctrl-C becomes 130."""
    from rich.console import Console

    from trunkline.cli.app import app

    try:
        app()
    except TrunklineError as error:
        Console(stderr=True).print(f"[red]error:[/red] {error.message}", highlight=False, markup=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
