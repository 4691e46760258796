"""The short form of the fuzz campaign: kept inputs, and mutations of them that are the same each time."""

import signal
import sys
from contextlib import closing

import pytest

from benchmarks import fuzz
from benchmarks.fuzz import CORPUS, TARGETS, replay, seeds_of
from benchmarks.page_session import Page, opened_page


@pytest.fixture(scope="module", autouse=True)
def _page():
    """End the session that answered messages."""
    yield
    if opened_page.cache_info().currsize:
        opened_page().close()
        opened_page.cache_clear()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that no model has
@pytest.mark.parametrize(
    ("target", "n_mutations", "outcomes"),
    [
        ("model_file", 400, {"accepted", "refused by the reader", "refused by the loader", "useless"}),
        ("config", 80, {"accepted", "refused", "accepted and refused"}),
        ("labels", 400, {"accepted", "refused", "no YAML"}),
        ("image", 200, {"read", "refused"}),
        ("zarr", 12, {"read", "refused"}),
        ("outlines", 400, {"read", "refused"}),
        ("ome", 400, {"read", "refused"}),
        ("frame", 200, {"answered", "refused", "refused, connection closed"}),
    ],
)
def test_inputs_are_accepted_or_refused_in_words(target, n_mutations, outcomes):
    found = replay(target, n_mutations).keys()
    assert found <= outcomes
    assert len(found) > 1


@pytest.mark.parametrize("target", [target for target in fuzz.MADE if target != "frame"])
def test_files_that_are_damaged_are_sound_before(target):
    assert {TARGETS[target][0](data) for data in seeds_of(target)} == {"read"}


def test_messages_that_are_damaged_are_sound_before():
    """All but merging and splitting objects where none are."""
    with closing(Page()) as page:
        found = [page.answer(data) for data in seeds_of("frame")]
    assert found.count("refused") <= 2
    assert set(found) == {"answered", "refused"}


def test_an_error_of_another_kind_comes_out(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setitem(TARGETS, "labels", (fail, TARGETS["labels"][1]))
    with pytest.raises(ZeroDivisionError):
        replay("labels", 1)


def test_kept_inputs_are_small():
    files = [file for file in CORPUS.rglob("*") if file.is_file()]
    assert {file.parent.name for file in files} == TARGETS.keys() - fuzz.MADE.keys()
    assert all(file.stat().st_size < 10_000 for file in files)
    assert all(len(seeds_of(target)) >= 2 for target in TARGETS)


def test_kept_models_get_as_far_as_they_should():
    """Those that the format itself does not rule out must reach the loader, whatever the format has become."""
    found = {
        name: fuzz.read_model_file((CORPUS / "model_file" / name).read_bytes())
        for name in (
            "present-format",
            "zero-weights",
            "bank-of-a-list",
            "bank-without-end",
            "unknown-criterion",
        )
    }
    assert found.pop("present-format") == "accepted"
    assert found.pop("zero-weights") == "useless"
    assert set(found.values()) == {"refused by the loader"}


@pytest.mark.slow
def test_an_input_that_takes_too_long_ends_its_process(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "SECONDS", 0.5)
    state = tmp_path / "state.json"
    hang = (
        f"import pathlib, time; pathlib.Path({str(fuzz._current(state))!r}).write_bytes(b'x'); time.sleep(60)"
    )
    status, _ = fuzz._watch([sys.executable, "-c", hang], state)
    assert status == -signal.SIGKILL
    assert fuzz._current(state).read_bytes() == b"x"
    assert fuzz._watch([sys.executable, "-c", "print('done')"], state) == (0, "done\n")
