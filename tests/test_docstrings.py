"""Every public object has a numpydoc docstring that numpydoc itself finds complete."""

import importlib
import inspect
import pkgutil

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import segkit

# What numpydoc asks beyond our page of style: summaries that end in a full stop are enough, and a
# property or a short method may describe itself in one line.
CHECKED = {"GL08", "SS03", "SS05", "PR01", "PR02", "PR03", "PR04", "PR06", "PR07", "RT03"}
# Those of napari cannot be imported without it and Qt; tests/napari checks their docstrings.
LEFT_OUT = ("segkit.__main__", "segkit.napari.choice", "segkit.napari.results", "segkit.napari.widget")


def modules():
    for module_info in pkgutil.walk_packages(segkit.__path__, "segkit."):
        if module_info.name not in LEFT_OUT:
            yield importlib.import_module(module_info.name)


def public_objects():
    for module in modules():
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
                continue
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{module.__name__}.{name}"


def test_every_module_says_what_it_is():
    for module in modules():
        assert module.__doc__, module.__name__


def one_line(name):
    """Commands of the CLI and functions whose one line says it all are judged by their summary only."""
    return name.startswith(("segkit.cli.commands", "segkit.config"))


@pytest.mark.parametrize("name", sorted(set(public_objects())))
def test_docstring(name):
    result = validate(name)
    long = "Parameters\n" in (result["docstring"] or "")
    checked = CHECKED if long and not one_line(name) else {"GL08", "SS03"}
    assert not [error for error in result["errors"] if error[0] in checked]


def told_defaults():
    """Give each public object with the defaults that its docstring tells, by parameter."""
    for name in sorted(set(public_objects())):
        module, _, last = name.rpartition(".")
        thing = getattr(importlib.import_module(module), last)
        told = {
            parameter.strip("*"): one.type.partition("default=")[2]
            for one in NumpyDocString(inspect.getdoc(thing) or "")["Parameters"]
            for parameter in one.name.split(", ")
            if "default=" in one.type
        }
        if told:
            yield thing, told


def test_defaults_are_those_of_the_docstrings():
    n_compared = 0
    for thing, told in told_defaults():
        parameters = inspect.signature(thing).parameters
        for parameter, text in told.items():
            try:
                expected = eval(text, {"__builtins__": {}})
            except NameError:  # an object, such as Identity()
                continue
            assert parameters[parameter].default == expected, (
                f"{thing.__module__}.{thing.__name__}: {parameter}"
            )
            n_compared += 1
    assert n_compared > 300
