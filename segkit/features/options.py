"""Checks of options against what constructors declare: types, choices and ranges, for Python as for configurations."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from segkit.errors import ConfigError


def _odd(value: int) -> int:
    if not value % 2:
        raise ConfigError("input should be odd")
    return value


def once(values: Sequence[Any]) -> Sequence[Any]:
    """Refuse values that repeat."""
    if len(set(values)) < len(values):
        raise ConfigError("each value should be given once")
    return values


ODD, ONCE = AfterValidator(_odd), AfterValidator(once)


def check_options(declared: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that are not as the annotations of a constructor or another function say."""
    adapters = _adapters(declared)
    for name in adapters.keys() & options.keys():
        value = as_python(options[name])
        try:
            adapters[name].validate_python(value)
        except ValidationError as error:
            # of a union, the fault of the type that comes nearest
            fault = max(error.errors(), key=lambda fault: (len(fault["loc"]), not _is_of_type(fault["type"])))
            message = fault["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{name}={reprlib.repr(value)}: {message[0].lower()}{message[1:]}") from None


def as_python(value: Any) -> Any:
    """Return Python's numbers and lists in place of NumPy's."""
    if isinstance(value, list | tuple):
        return type(value)(map(as_python, value))
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@cache
def _adapters(declared: Callable[..., Any]) -> dict[str, TypeAdapter[Any]]:
    rules = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
    parameters = signature(declared, eval_str=True).parameters
    return {name: TypeAdapter(option.annotation, config=rules) for name, option in parameters.items()}


def _is_of_type(kind: str) -> bool:
    return kind == "is_instance_of" or kind.endswith("_type")
