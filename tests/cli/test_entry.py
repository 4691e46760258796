"""Ctrl-C and SIGTERM end a command in order from its first moment."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import builtins, os, sys
    from segkit.cli.entry import main
    number, load = int(sys.argv.pop(1)), builtins.__import__

    def interrupted(name, *arguments):
        if name == "typer":
            os.kill(os.getpid(), number)
        return load(name, *arguments)

    builtins.__import__ = interrupted
    main()
"""


def restore_default_signals():
    """Let Ctrl-C count: a shell that runs tests in the background lets its programs ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow(short=True)
@pytest.mark.skipif(os.name == "nt", reason="ends by signal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_modules_are_loaded_is_one_line_and_status_130(number):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(int(number)), "inspect", "nothing"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, preexec_fn=restore_default_signals
    )
    assert (done.returncode, done.stderr) == (130, "segkit: interrupted\n")
