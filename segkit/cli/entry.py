"""Where the command ``segkit`` begins."""

from __future__ import annotations

import sys

from segkit.cli import INTERRUPTED, terminated_as_by_ctrl_c


def main() -> None:
    """Run the command line; Ctrl-C and SIGTERM end it in one line, and with status 130, from the start."""
    try:
        with terminated_as_by_ctrl_c():
            from segkit.cli.commands import main as run

            run()
    except KeyboardInterrupt:
        sys.stderr.write("segkit: interrupted\n")
        sys.exit(INTERRUPTED)
