"""Banks as plain dictionaries, for model files and configurations, and back."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from segkit.errors import ConfigError
from segkit.features.averaged import OrbitAveraged
from segkit.features.base import FilterBank
from segkit.features.convnet import ConvNetBank
from segkit.features.modules import ModuleBank
from segkit.features.orbit import OrbitBank
from segkit.features.scattering import ScatteringBank

BANKS: dict[str, type[FilterBank]] = {
    "convnet": ConvNetBank,
    "modules": ModuleBank,
    "orbit": OrbitBank,
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
        return bank_to_dict(bank.bank) | {"orbit": bank.orbit, "orbit_embedding": bank.embedding}
    for kind, cls in BANKS.items():
        if type(bank) is cls:
            return {"kind": kind} | {
                name: _plain(value) for name, value in bank.get_params(deep=False).items()
            }
    raise ConfigError(f"bank {type(bank).__name__} cannot be stored: only {', '.join(BANKS)} banks can")


def bank_from_dict(description: dict[str, Any]) -> FilterBank:
    """Rebuild a bank from what `bank_to_dict` returned."""
    parameters = dict(description)
    if "orbit" in parameters:
        orbit, embedding = parameters.pop("orbit"), parameters.pop("orbit_embedding")
        return OrbitAveraged(bank_from_dict(parameters), orbit=orbit, embedding=embedding)
    kind = parameters.pop("kind")
    if kind not in BANKS:
        raise ConfigError(f"bank {kind!r}: choose one of {', '.join(BANKS)}")
    return BANKS[kind](**parameters)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
