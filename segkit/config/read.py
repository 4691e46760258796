"""Nested options, not yet checked: from YAML files (your own or shipped with segkit) and ``--set key=value``."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from segkit.errors import ConfigError


def read_options(
    path: Path | None, overrides: Iterable[str] = (), *, base: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read nested options that are not yet checked.

    Parameters
    ----------
    path : Path, optional
        YAML file. Where there is none, its name may be that of a configuration that comes with segkit.
    overrides : iterable of str
        ``key=value`` with a dotted key and a YAML value; they win over the file.
    base : mapping, optional
        Sections that the file may replace and the overrides may change.

    Returns
    -------
    dict
        Sections and their options.

    Raises
    ------
    ConfigError
        If the file cannot be read, or an override has no value.
    """
    options = deepcopy(dict(base or {})) | ({} if path is None else _read_yaml(_find(path)))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {override}: needed is key=value, for example --set bank.name=vgg16")
        _assign(options, key.strip(), _parse_yaml(text, f"--set {override}"))
    return options


def shipped(name: str) -> Path:
    """Return the file of a configuration that comes with segkit."""
    package = Path(__file__).parents[1]
    folder = package / "configs"  # in a checkout it is beside the package
    return (folder if folder.exists() else package.parent / "configs") / f"{name}.yaml"


def _find(path: Path) -> Path:
    """Return a file, or else the one that comes with segkit: NAME, NAME.yaml or configs/NAME.yaml."""
    if path.exists() or path.parent not in (Path(), Path("configs")):
        return path
    found = shipped(path.stem)
    return found if found.exists() else path


def _read_yaml(path: Path) -> dict[str, Any]:
    known = sorted(file.stem for file in shipped("").parent.glob("*.yaml"))
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise ConfigError(
            f"configuration {path}: no such file: check its name, or give that of one that comes with segkit: "
            f"{', '.join(known)}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"configuration {path} cannot be read ({error}): give a YAML file, or the name of one that comes with "
            f"segkit: {', '.join(known)}"
        ) from error
    options = _parse_yaml(text, f"configuration {path}")
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise ConfigError(
            f"configuration {path} holds a {type(options).__name__}: needed are keys such as bank, selection"
        )
    return options


class _Loader(yaml.SafeLoader):
    """A loader that refuses a key given twice, of which YAML takes the last, text that unfolds without end, and odd numbers.

    YAML reads 010 as 8, and 1:30 as 90.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        _count_nodes(node, {})
        return super().construct_document(node)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        _refuse_odd(node.value)
        return super().construct_yaml_int(node)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        _refuse_odd(node.value)
        return super().construct_yaml_float(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:  # what is merged may be replaced
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):  # refused with the mapping, below
                continue
            line = key_node.start_mark.line + 1
            if key in lines:
                where = f"on line {line}" if line == lines[key] else f"on lines {lines[key]} and {line}"
                raise ConfigError(f"key {key} is given twice, {where}: keep one of them")
            lines[key] = line
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _refuse_odd(number: str) -> None:
    """Refuse what YAML takes for a number to the base 8 or 60, and people for another."""
    if ":" in number or re.fullmatch(r"[-+]?0[0-7_]+", number):
        raise ConfigError(
            f"number {number}, which YAML reads as another: give it without zeros in front and colons, or in quotes"
        )


_MERGE = "tag:yaml.org,2002:merge"
_MOST_NODES = 100_000


def _count_nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values of a document, those behind an alias at each of its uses."""
    if id(node) not in known:
        known[id(node)] = _MOST_NODES  # for a node that holds itself
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        parts = [part for entry in parts for part in (entry if isinstance(entry, tuple) else [entry])]
        known[id(node)] = 1 + sum(_count_nodes(part, known) for part in parts)
    if known[id(node)] > _MOST_NODES:
        raise ConfigError(f"more than {_MOST_NODES} values, aliases (*NAME) unfolded: write the options out")
    return known[id(node)]


def _parse_yaml(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        cause = " ".join(str(error).split())
        raise ConfigError(
            f"{source} is not YAML ({cause}): quote text that holds any of : {{ }} [ ]"
        ) from error


def _assign(options: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested dictionaries and lists, whose items go by number from 0."""
    keys = key.split(".")
    inner: Any = options
    for parent, child in pairwise(keys):
        inner = inner[int(parent)] if isinstance(inner, list) else inner.setdefault(parent, {})
        if isinstance(inner, list) and not (child.isdecimal() and int(child) < len(inner)):
            raise ConfigError(
                f"--set {key}: {parent} is a list of {len(inner)}, whose items are numbered from 0: {child} is none of them"
            )
        if not isinstance(inner, dict | list):
            raise ConfigError(f"--set {key}: {parent} is a value, not a section")
    inner[int(keys[-1]) if isinstance(inner, list) else keys[-1]] = value
