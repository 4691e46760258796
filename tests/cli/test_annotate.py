import importlib
import sys

import pytest

from segkit.cli import annotate as module
from segkit.cli import commands as cli


@pytest.fixture
def segkit(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["segkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return run


def test_without_the_extra_one_line_says_what_to_install(segkit, tmp_path, monkeypatch):
    known = importlib.util.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "uvicorn" else known(name))
    code, out, err = segkit("annotate", tmp_path)
    assert (code, out) == (2, "")
    assert (
        err
        == 'segkit: segkit annotate needs uvicorn, not installed here: pip install "segkit-bio[annotate]"\n'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--classes", "lesion"], "classes 'lesion': give two names or more"),
        (["--classes", "a,,b"], "classes 'a, , b': give two names or more"),
        (["--class", "a", "--class", "a"], "classes a, a: each needs a name of its own"),
        (["--classes", "a,b", "--class", "c"], "--classes and --class: give the names by one of the two"),
    ],
)
def test_wrong_classes(options, message):
    from segkit.errors import ConfigError

    listed = options[1] if options[0] == "--classes" else None
    repeated = [options[i + 1] for i in range(0, len(options), 2) if options[i] == "--class"]
    with pytest.raises(ConfigError, match=message):
        module._read_names(listed, repeated)


@pytest.mark.parametrize(
    ("listed", "repeated"), [("background, lesion", None), (None, ["background", "lesion"])]
)
def test_names_of_classes(listed, repeated):
    assert module._read_names(listed, repeated) == ["background", "lesion"]


def test_help_names_the_options(segkit):
    code, out, _ = segkit("annotate", "--help")
    assert code == 0
    for option in (
        "--output",
        "--classes",
        "--masks",
        "--model",
        "--config",
        "--set",
        "--port",
        "--no-browser",
    ):
        assert option in out
