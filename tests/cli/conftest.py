"""The command line, in the process of the tests."""

import sys

import pytest

from segkit.cli import commands


@pytest.fixture
def segkit(monkeypatch, capsys):
    """Run the command line in this process; returns exit status, standard output and error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["segkit", *map(str, arguments)])
        monkeypatch.setattr("warnings.showwarning", None)
        with pytest.raises(SystemExit) as stopped:
            commands.main()
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run
