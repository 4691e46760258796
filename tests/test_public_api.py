"""The public API is what the packages of segkit list in `__all__`, with a complete docstring each; all else may change."""

import ast
import importlib
import inspect
import pkgutil
from collections import Counter
from pathlib import Path

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import segkit

PACKAGES = [info.name for info in pkgutil.iter_modules(segkit.__path__, "segkit.") if info.ispkg]
NAMES = {package: list(getattr(importlib.import_module(package), "__all__", ())) for package in PACKAGES}
# What numpydoc asks beyond our page of style: summaries that end in a full stop are enough, and a
# property or a short function may describe itself in one line.
CHECKED = {"GL08", "SS03", "SS05", "PR01", "PR02", "PR03", "PR04", "PR06", "PR07", "RT03"}


def public_objects(package):
    """Names and objects of a package, without constants and types of hints."""
    for name in NAMES[package]:
        thing = getattr(importlib.import_module(package), name)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            yield name, thing


def test_there_are_few_public_names_each_in_one_package():
    counts = Counter(name for names in NAMES.values() for name in names)
    assert 50 < len(counts) < 200
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_list_all_that_they_import_and_nothing_else(package):
    """A name that is there by accident would be used all the same."""
    module, names = importlib.import_module(package), NAMES[package]
    assert not [name for name in names if name.startswith("_") or not hasattr(module, name)]
    tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("segkit")
        for alias in node.names
    }
    assert imported <= set(names)


@pytest.mark.parametrize("package", [package for package, names in NAMES.items() if names])
def test_public_objects_are_documented(package):
    faults = {}
    for name, thing in public_objects(package):
        result = validate(f"{package}.{name}")
        checked = CHECKED if "Parameters\n" in (result["docstring"] or "") else {"GL08", "SS03"}
        if errors := [error for error in result["errors"] if error[0] in checked]:
            faults[name] = errors
        if thing.__module__.startswith("segkit"):
            assert not thing.__name__.startswith("_")
    assert not faults


def test_defaults_are_those_of_the_docstrings():
    n_compared = 0
    for name, thing in (pair for package in PACKAGES for pair in public_objects(package)):
        for one in NumpyDocString(inspect.getdoc(thing) or "")["Parameters"]:
            text = one.type.partition("default=")[2]
            for parameter in one.name.split(", ") if text else []:
                try:
                    expected = eval(text, {"__builtins__": {}})
                except NameError:  # an object, such as Identity()
                    continue
                default = inspect.signature(thing).parameters[parameter.strip("*")].default
                assert default == expected, f"{name}: {parameter}"
                n_compared += 1
    assert n_compared > 150


def test_the_names_of_segkit_itself_are_names_of_its_packages():
    where = {name: package for package, names in NAMES.items() for name in names}
    for name in set(segkit.__all__) - {"__version__"}:
        assert getattr(segkit, name) is getattr(importlib.import_module(where[name]), name)
    assert (Path(segkit.__file__).parent / "py.typed").exists()


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="module 'segkit' has no attribute 'Segmentor'"):
        _ = segkit.Segmentor
