"""Sections of options, and the faults that pydantic finds in them, each told in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

# Characters of a value that a message repeats.
_MOST_SHOWN = 200


class Section(BaseModel):
    """Options that belong together; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def refuse_idle(self, names: Iterable[str], *, under: str, cure: str) -> None:
        """Refuse options that another option leaves without effect; ``{at}`` in texts is the section's key and a dot.

        A default is never refused: some configurations list every option.
        """
        fields = type(self).model_fields
        defaults = {name: fields[name].get_default(call_default_factory=True) for name in names}
        idle = {name: getattr(self, name) for name in defaults if getattr(self, name) != defaults[name]}
        if idle:
            raise PydanticCustomError("idle", "without effect", {"idle": idle, "under": under, "cure": cure})


def locate(error: Any, options: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """Find the keys that lead to a fault, and the section or list that holds each key."""
    # pydantic's location also names kinds of banks and of values, which are left out
    location: list[str] = []
    within: list[Any] = []
    value: Any = options
    for part in error["loc"]:
        if (isinstance(value, Mapping) and part in value) or (
            isinstance(value, list) and isinstance(part, int)
        ):
            location.append(str(part))
            within.append(value)
            value = value[part]
    return location, within


def deepest(errors: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return the first fault, or the one inside its value: of a list where one number may stand too, that of an item."""
    key, _ = locate(errors[0], options)
    keys = [locate(error, options)[0] for error in errors]
    inside = [place for place, other in enumerate(keys) if other[: len(key)] == key]
    return errors[max(inside, key=lambda place: len(keys[place]))]


def explain_value(error: Any, location: Iterable[str]) -> str:
    """Explain a fault of a value, or of options without effect, in one line."""
    key = ".".join(location)
    if error["type"] == "idle":
        return _explain_idle(**error["ctx"], at=f"{key}." if key else "")
    told = error["msg"].removeprefix("Value error, ")
    if error["type"] == "dict_type":
        told = "give names and values in braces, such as {0: background, 1: cell}"
    elif error["type"].startswith("bool_"):
        told = "give true or false"
    return f"{key}={shown(error['input'])}: {told[0].lower()}{told[1:]}"


def shown(value: Any) -> str:
    """Write a value that was given, cut if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "(a very long number)"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def _explain_idle(idle: Mapping[str, Any], under: str, cure: str, at: str) -> str:
    given = ", ".join(f"{at}{name}={shown(value)}" for name, value in idle.items())
    do, them = ("does", "it") if len(idle) == 1 else ("do", "them")
    return f"{given} {do} nothing under {under.format(at=at)}: leave {them} out, or set {cure.format(at=at)}"
