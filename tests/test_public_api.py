"""The public API is what the packages of segkit list in `__all__`; everything else may change without notice."""

import ast
import importlib
import inspect
import pkgutil
from collections import Counter
from pathlib import Path

import pytest
from numpydoc.validate import validate

import segkit

PACKAGES = [info.name for info in pkgutil.iter_modules(segkit.__path__, "segkit.") if info.ispkg]
PUBLIC = [
    (package, name)
    for package in PACKAGES
    for name in getattr(importlib.import_module(package), "__all__", ())
]
OBJECTS = [
    (package, name)
    for package, name in PUBLIC
    if inspect.isclass(thing := getattr(importlib.import_module(package), name)) or inspect.isroutine(thing)
]
MOST_NAMES = 200


def test_there_are_few_public_names():
    assert 50 < len({name for _, name in PUBLIC}) < MOST_NAMES


def test_each_name_is_public_in_one_package():
    counts = Counter(name for _, name in PUBLIC)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_lists_are_true(package):
    module = importlib.import_module(package)
    names = list(getattr(module, "__all__", ()))
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.startswith("_") or not hasattr(module, name)]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_list_all_that_they_import(package):
    """A name that is there by accident would be used all the same."""
    module = importlib.import_module(package)
    tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("segkit")
        for alias in node.names
    }
    assert imported <= set(getattr(module, "__all__", ()))


@pytest.mark.parametrize(("package", "name"), OBJECTS, ids=lambda text: text)
def test_public_objects_are_documented(package, name):
    thing = getattr(importlib.import_module(package), name)
    assert inspect.getdoc(thing)
    errors = {
        code: text for code, text in validate(f"{package}.{name}")["errors"] if code in ("GL08", "SS03")
    }
    assert not errors
    if thing.__module__.startswith("segkit"):
        assert not thing.__name__.startswith("_")


def test_the_names_of_segkit_itself_are_names_of_its_packages():
    assert set(segkit.__all__) - {"__version__"} <= {name for _, name in PUBLIC}
    where = {name: package for package, name in PUBLIC}
    for name in set(segkit.__all__) - {"__version__"}:
        assert getattr(segkit, name) is getattr(importlib.import_module(where[name]), name)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="module 'segkit' has no attribute 'Segmentor'"):
        _ = segkit.Segmentor
