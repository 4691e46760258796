import shutil
import subprocess

import pytest

from benchmarks import stale
from benchmarks.common import digest_of, rows_of, write_result

if shutil.which("git") is None:
    pytest.skip("needs git", allow_module_level=True)

FIRST = '"""Words."""\n\n\ndef double(x):\n    """Double."""\n    return 2 * x\n'


@pytest.fixture
def history(tmp_path):
    """A repository of a package of two modules, in two commits."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    for version, text in enumerate((FIRST, FIRST.replace("2 * x", "x + x"))):
        for path, content in (
            ("segkit/__init__.py", ""),
            ("segkit/one.py", text),
            ("configs/a.yaml", "a: 1\n"),
        ):
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(content)
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", str(version)]):
            subprocess.run([*git, *command], cwd=tmp_path, check=True, capture_output=True)
    return stale.History(tmp_path)


def test_each_commit_is_found_by_its_digest(history, monkeypatch):
    """By the function that writes the digests, on the files of the last commit."""
    import benchmarks.common as common
    import segkit

    monkeypatch.setattr(segkit, "__file__", str(history.root / "segkit" / "__init__.py"))
    monkeypatch.setattr(common, "CONFIGS", history.root / "configs")
    now = common.digest_sources.__wrapped__()
    assert len(history.commits) == 2
    assert now in history.commits
    [before] = set(history.commits) - {now}
    assert not history.differs(now, ["segkit.one"])
    assert history.differs(before, ["segkit", "segkit.one"])
    assert not history.differs(before, ["segkit"])


def test_words_are_no_code(history):
    now = list(history.commits)[-1]
    file = history.root / "segkit" / "one.py"
    file.write_text("# a comment\n" + file.read_text().replace("Double.", "Give twice the number."))
    assert not stale.History(history.root).differs(now, ["segkit.one"])
    file.write_text(file.read_text() + "\nother = 1\n")
    assert stale.History(history.root).differs(now, ["segkit.one"])
    file.unlink()
    assert stale.History(history.root).differs(now, ["segkit.one"])


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("x = 1", "x = 1  # one", True),
        ("x = 1", "x = 2", False),
        ('def f():\n    raise ValueError("no")', 'def f():\n    raise ValueError("never") from None', True),
        ('"""Doc."""', "", True),
        ('class A:\n    """Doc."""\n    b = 1', "class A:\n    b = 1", True),
    ],
)
def test_meaning(first, second, same):
    assert (stale.meaning_of(first) == stale.meaning_of(second)) == same


def test_states_of_rows(history):
    then, now = history.commits
    modules = ["segkit.one"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stale, "modules_of", lambda name, row: modules)
        found = [
            stale.state_of("speed", row, history)
            for row in ({"code": now}, {"sources": then}, {"sources": "0" * 12}, {"sources": None}, {})
        ]
    assert found == ["current", "older", "unknown code", "without digest", "without digest"]


def test_a_method_speaks_of_its_own_module():
    fcn, forest, recipe = (
        stale.modules_of("segmentation-drive", {"method": method})
        for method in ("fcn-vgg19", "forest-centred", "no-multiscale")
    )
    assert "segkit.baselines.training" in fcn
    assert "segkit.baselines.training" not in forest | recipe
    assert "segkit.baselines.forest" in forest
    assert {"segkit.kernels.mmd", "segkit.segmentation.held_out"} <= recipe


def test_other_results_speak_of_what_their_benchmark_imports():
    found = stale.modules_of("linear_svm", {})
    assert "segkit.classifier.svm" in found
    assert not any(module.startswith("segkit.features") for module in found)
    assert "segkit.annotate.server" in stale.modules_of("kills", {})
    assert "segkit.invariance.orbit" in stale.modules_of("002-table1", {})


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"runs": [{"sources": "a"}, {"b": 1}]}, ["a", None]),
        ({"code": "c", "rows": [{"x": 1}, {"x": 2, "quoted": True}]}, ["c"]),
        ({"seconds": 3}, [None]),
        ({"training": {"sources": "a"}, "machine": {"cpu": "x"}}, ["a"]),
    ],
)
def test_rows_of_a_result_file(result, expected):
    assert [digest_of(row) for row in rows_of(result)] == expected


def test_results_are_written_with_a_digest(tmp_path):
    import json

    file = tmp_path / "result.json"
    write_result(file, {"seconds": 3})
    assert len(json.loads(file.read_text())["sources"]) == 12
    write_result(file, {"runs": [{"code": "a"}]})
    assert "sources" not in json.loads(file.read_text())


def test_a_page_says_which_tables_are_older(monkeypatch):
    page = (
        "<!-- table at_five -->\nsegkit, no networks\n<!-- end -->\n\n"
        "<!-- table fast -->\na table\n<!-- end -->\nMeasured with older code.\n\nMore.\n"
    )
    monkeypatch.setattr(
        stale,
        "states",
        lambda path, history: [({"method": "segkit-no-networks"}, "older"), ({"method": "fcn"}, "current")],
    )
    assert stale.unmarked(page, None) == ["at_five"]
    monkeypatch.setattr(stale, "states", lambda path, history: [({"method": "unet"}, "older")])
    assert stale.unmarked(page, None) == []


def test_without_a_history_it_says_so(tmp_path):
    with pytest.raises(SystemExit, match="no history of a git repository to read, clone it whole"):
        _ = stale.History(tmp_path / "none").commits
