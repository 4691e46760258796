"""The options of baselines, as their constructors declare them: types and ranges in annotations, checked in one place."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from segkit.errors import ConfigError
from segkit.features.registry import plain

Whole = Annotated[int, Field(gt=0, le=10_000_000)]
_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rates = _Rate | Annotated[Sequence[_Rate], Field(min_length=1)]
Preprocessing = Literal["torchvision", "caffe"]


def check_options(estimator: Any) -> None:
    """Refuse an option whose value is not of the type that the constructor declares, or out of its range."""
    for name, option in signature(type(estimator), eval_str=True).parameters.items():
        value = getattr(estimator, name)
        known = TypeAdapter(option.annotation, config=ConfigDict(arbitrary_types_allowed=True))
        try:
            known.validate_python(plain(value), strict=True)
        except ValidationError as error:
            # of a number or several, the fault inside of them
            told = max(error.errors(), key=lambda fault: len(fault["loc"]))["msg"]
            raise ConfigError(f"{name}={value!r}: {told[0].lower()}{told[1:]}") from error
