"""Banks as plain dictionaries, for model files and configurations, and back."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segkit.errors import ConfigError
from segkit.features.averaged import OrbitAveraged
from segkit.features.base import FilterBank
from segkit.features.convnet import ConvNetBank
from segkit.features.elongated import ElongatedBank
from segkit.features.modules import ModuleBank
from segkit.features.multiscale import MultiscaleBank
from segkit.features.orbit import OrbitBank
from segkit.features.position import PositionBank
from segkit.features.scattering import ScatteringBank
from segkit.features.stacked import StackedBank

BANKS: dict[str, type[FilterBank]] = {
    "convnet": ConvNetBank,
    "elongated": ElongatedBank,
    "modules": ModuleBank,
    "multiscale": MultiscaleBank,
    "orbit": OrbitBank,
    "position": PositionBank,
    "scattering": ScatteringBank,
}


def bank_to_dict(bank: FilterBank) -> dict[str, Any]:
    """Kind and parameters of a bank, JSON-able; those of an averaged bank beside its bank's own.

    Raises
    ------
    ConfigError
        If the bank is none of segkit's own, which a model file could not restore.
    """
    if type(bank) is OrbitAveraged:
        return bank_to_dict(bank.bank) | {"orbit": plain(bank.orbit), "orbit_embedding": bank.embedding}
    if type(bank) is StackedBank:
        return {"kind": "stacked", "banks": [bank_to_dict(part) for part in bank.banks]}
    for kind, cls in BANKS.items():
        if type(bank) is cls:
            return {"kind": kind} | {
                name: plain(value) for name, value in bank.get_params(deep=False).items()
            }
    raise ConfigError(f"bank {type(bank).__name__} cannot be stored: only {', '.join(BANKS)} banks can")


def bank_from_dict(description: dict[str, Any]) -> FilterBank:
    """Rebuild a bank from what `bank_to_dict` returned."""
    parameters = dict(description)
    if "orbit" in parameters:
        orbit, embedding = parameters.pop("orbit"), parameters.pop("orbit_embedding")
        return OrbitAveraged(bank_from_dict(parameters), orbit=orbit, embedding=embedding)
    kind = parameters.pop("kind")
    if kind == "stacked":
        return StackedBank([bank_from_dict(part) for part in parameters["banks"]])
    if kind not in BANKS:
        raise ConfigError(f"bank {kind!r}: choose one of {', '.join(BANKS)}")
    return BANKS[kind](**parameters)


def plain(value: Any) -> Any:
    """Turn a parameter into what JSON can hold: NumPy's numbers and arrays, dataclasses and paths too."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(item) for name, item in asdict(value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value) if isinstance(value, Path) else value
