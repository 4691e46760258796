"""Faults that are gathered: one message for all, files of the same fault together."""

import pytest

from segkit.errors import InputError, OutputError
from segkit.images.findings import Findings


def refuse(message, source=None):
    raise InputError(message, source=source)


def test_nothing_is_refused_without_a_fault():
    Findings(notes=["odd"]).refuse()


def test_one_fault_is_raised_as_it_is():
    found = Findings()
    assert found.attempt(int, "3", base=8) == 3
    assert found.attempt(refuse, "damaged", source="a.png") is None
    with pytest.raises(InputError) as error:
        found.refuse()
    assert error.value is found.faults[0]


def test_files_of_the_same_fault_are_named_together_whatever_its_words():
    found = Findings()
    for source in ("a.png", "b.png"):
        found.attempt(refuse, "damaged: copy it anew", source=source)
    found.attempt(refuse, "1 mask: remove it")
    other = Findings()
    other.attempt(refuse, "2 masks: remove it")
    found.add(other)
    with pytest.raises(InputError) as error:
        found.refuse()
    assert str(error.value) == (
        "4 faults: a.png, b.png: damaged: copy it anew; 1 mask: remove it; 2 masks: remove it"
    )


def test_other_errors_are_not_gathered():
    def write():
        raise OutputError("full")

    with pytest.raises(OutputError):
        Findings().attempt(write)
