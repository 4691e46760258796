"""Banks as plain dictionaries, for model files and configurations, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from segkit._common import is_whole
from segkit.errors import ConfigError, count
from segkit.features.averaged import OrbitAveraged
from segkit.features.base import MOST_CHANNELS, FilterBank
from segkit.features.convnet import ConvNetBank
from segkit.features.elongated import ElongatedBank
from segkit.features.modules import ModuleBank
from segkit.features.multiscale import MultiscaleBank
from segkit.features.options import as_python, check_options
from segkit.features.orbit import OrbitBank
from segkit.features.position import PositionBank
from segkit.features.scattering import ScatteringBank
from segkit.features.stacked import StackedBank
from segkit.features.timm import TimmBank
from segkit.features.tuned import TunedBank
from segkit.features.volume import VolumeBank
from segkit.invariance.embeddings import Embedding, FourierEmbedding, StepEmbedding
from segkit.invariance.groups import Composition, Group, Identity
from segkit.invariance.spatial import Dihedral, Reflection, Rotation, Scaling
from segkit.kernels.base import Gaussian

BANKS: dict[str, type[FilterBank]] = {
    "convnet": ConvNetBank,
    "scattering": ScatteringBank,
    "modules": ModuleBank,
    "multiscale": MultiscaleBank,
    "elongated": ElongatedBank,
    "orbit": OrbitBank,
    "position": PositionBank,
    "timm": TimmBank,
    "tuned": TunedBank,
    "volume": VolumeBank,
}

_NONLINEARITIES: dict[type[Embedding], str] = {
    FourierEmbedding: "fourier",
    StepEmbedding: "step",
}


# Reach in pixels, and turns of a group, beyond which an option is a mistake.
MOST_HALO = 4096
MOST_TURNS = 720


def check_size(bank: FilterBank, n_image_channels: int) -> None:
    """Refuse a bank of absurdly many channels or of absurd reach, before anything of that size is made."""
    # Each further image channel adds as many as the second.
    first, both = bank.n_channels(1), bank.n_channels(2)
    number = first + (n_image_channels - 1) * (both - first)
    if number > MOST_CHANNELS:
        raise ConfigError(
            f"bank {bank.label}: {number:,} channels of {count(n_image_channels, 'image channel')}, at most "
            f"{MOST_CHANNELS:,} can be computed"
        )
    if bank.halo > MOST_HALO:
        raise ConfigError(
            f"bank {bank.label}: it reaches {bank.halo:,} pixels, at most {MOST_HALO:,} make sense"
        )


def bank_to_dict(bank: FilterBank) -> dict[str, Any]:
    """Describe a bank by kind and parameters, JSON-able; group and normalisation beside the bank's own.

    Raises
    ------
    ConfigError
        If the bank is none of segkit's own, which a model file could not restore.
    """
    if type(bank) is OrbitAveraged:
        return bank_to_dict(bank.bank) | {"orbit": _orbit_named(bank.group)}
    if type(bank) is StackedBank:
        banks = [bank_to_dict(part) for part in bank.banks]
        stacked: dict[str, Any] = {"kind": "stacked", "banks": banks}
        if bank.normalization == "image":
            return stacked
        # one bank that is no stack has the option beside its own
        is_option = len(banks) == 1 and banks[0].keys().isdisjoint({"banks", "normalization"})
        return (banks[0] if is_option else stacked) | {"normalization": bank.normalization}
    for kind, cls in BANKS.items():
        if type(bank) is cls:
            parameters = bank.get_params(deep=False)
            if isinstance(bank, OrbitBank):
                parameters = _with_options(parameters)
            return {"kind": kind} | {name: plain(value) for name, value in parameters.items()}
    raise ConfigError(f"bank {type(bank).__name__} cannot be stored: only {', '.join(BANKS)} banks can")


def bank_from_dict(description: dict[str, Any]) -> FilterBank:
    """Rebuild a bank from what `bank_to_dict` returned."""
    parameters = dict(description)
    is_stack = parameters["kind"] == "stacked"
    if not is_stack and (normalization := parameters.pop("normalization", "image")) != "image":
        return StackedBank([bank_from_dict(parameters)], normalization=normalization)
    orbit = parameters.pop("orbit", None)
    if orbit is not None:
        return OrbitAveraged(bank_from_dict(parameters), group=group_of(orbit))
    if is_stack:
        banks = [bank_from_dict(part) for part in parameters["banks"]]
        return StackedBank(banks, normalization=parameters.get("normalization", "image"))
    kind = parameters.pop("kind")
    if kind not in BANKS:
        raise ConfigError(f"bank {kind!r}: choose one of {', '.join(BANKS)}")
    bank = BANKS[kind]
    for name in signature(bank).parameters.keys() & _MAKERS:
        make = _MAKERS[name]
        own = {option: parameters.pop(option) for option in signature(make).parameters.keys() & parameters}
        check_options(make, own)
        parameters[name] = make(**own)
    return bank(**parameters)


def group_of(orbit: str | int) -> Group:
    """Find the group that the option `orbit` names."""
    if orbit == "d4":
        return Dihedral()
    if not is_whole(orbit) or int(orbit) > MOST_TURNS:
        raise ConfigError(f"orbit {orbit!r}: choose d4 or a number of angles, 1 to {MOST_TURNS}")
    return Rotation(int(orbit))


def _orbit_named(group: Group | None) -> str | int:
    """Name a group as the option `orbit` does."""
    if group is None or isinstance(group, Dihedral):
        return "d4"
    described = _describe(group)
    if described is None or described[1:] != (False, (1.0,)):
        raise ConfigError(f"group {group}: only Dihedral() and Rotation(n) can be stored")
    return described[0]


def _with_options(parameters: dict[str, Any]) -> dict[str, Any]:
    """Describe group and embedding of an `OrbitBank` by the options of configurations and model files."""
    options = dict(parameters)
    group, embedding = options.pop("group"), options.pop("embedding")
    described = _describe(Rotation(16) if group is None else group)
    if described is None:
        raise ConfigError(
            f"group {group}: only Dihedral() or compositions of Reflection(), Rotation(n), Scaling(factors) can be stored"
        )
    n_angles, reflections, scales = described
    options |= {"n_angles": n_angles, "reflections": reflections, "scales": scales}
    options |= {
        "nonlinearity": _NONLINEARITIES[type(embedding)] if embedding is not None else "fourier",
        "gamma": embedding.kernel.gamma if hasattr(embedding, "kernel") else 1.0,
        "thresholds": getattr(embedding, "thresholds", StepEmbedding.thresholds),
    }
    return dict(sorted(options.items()))


def make_group(
    n_angles: Annotated[int, Field(gt=0, le=MOST_TURNS)] = 16,
    reflections: bool = False,  # noqa: FBT001, FBT002
    scales: Annotated[Sequence[Annotated[float, Field(gt=0, le=16)]], Field(max_length=20)] = (1.0,),
) -> Group:
    """Make the group of an `OrbitBank`."""
    groups: list[Group] = [Rotation(n_angles)]
    if reflections:
        groups.insert(0, Reflection())
    if tuple(scales) != (1.0,):
        groups.append(Scaling(tuple(scales)))
    return groups[0] if len(groups) == 1 else Composition(tuple(groups))


def make_embedding(
    nonlinearity: Literal["fourier", "step"] = "fourier",
    gamma: Annotated[float, Field(gt=0)] = 1.0,
    thresholds: Annotated[Sequence[float], Field(min_length=1, max_length=100)] = StepEmbedding.thresholds,
) -> Embedding:
    """Make the embedding of an `OrbitBank`."""
    return StepEmbedding(tuple(thresholds)) if nonlinearity == "step" else FourierEmbedding(Gaussian(gamma))


# Parameters of banks that are objects: configurations and model files hold the options of what makes them.
_MAKERS: dict[str, Callable[..., Any]] = {"group": make_group, "embedding": make_embedding}


def options_of(kind: str) -> dict[str, Parameter]:
    """List the options of a kind of bank as its constructor declares them: name, type and default."""
    options: dict[str, Parameter] = {}
    for name, parameter in signature(BANKS[kind], eval_str=True).parameters.items():
        made = name in _MAKERS
        options |= signature(_MAKERS[name], eval_str=True).parameters if made else {name: parameter}
    return options


def _describe(group: Group) -> tuple[int, bool, tuple[float, ...]] | None:
    """Find a group's number of angles, whether it reflects, and its enlargements; None for any other group."""
    if isinstance(group, Dihedral):
        return 4, True, (1.0,)
    parts = group.groups if isinstance(group, Composition) else (group,)
    kinds = {type(part): part for part in parts}
    turns, scaling = kinds.get(Rotation, Rotation(1)), kinds.get(Scaling, Scaling((1.0,)))
    n_angles, scales = len(turns.elements(())), tuple(scaling.elements(()))
    known = (
        len(kinds) == len(parts)
        and kinds.keys() <= {Identity, Reflection, Rotation, Scaling}
        and turns == Rotation(n_angles)
        and scaling == Scaling(scales)
    )
    return (n_angles, Reflection in kinds, scales) if known else None


def plain(value: Any) -> Any:
    """Turn a parameter into what JSON can hold: NumPy's numbers and arrays, dataclasses and paths too."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(item) for name, item in asdict(value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else as_python(value)
