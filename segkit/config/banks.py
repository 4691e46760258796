"""The options of each filter bank: parameters of its constructor, and the few that only configurations have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, reduce
from inspect import Parameter
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
)

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
    TypeAdapter,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from segkit._common import is_whole
from segkit.config.faults import Section
from segkit.errors import ConfigError
from segkit.features import BANKS, FilterBank, bank_from_dict, bank_to_dict
from segkit.features.registry import MOST_TURNS, options_of, plain
from segkit.segmentation.segmenter import default_bank

# Banks that rotations leave as they are.
_INVARIANT = {"orbit", "position", "tuned"}
# Parameters that are no options: the seed is the run's, the images tell the planes, and the rest is for Python.
_NO_OPTIONS = {"random_state", "n_planes", "pixels", "frequency_decreasing"}


class Volume(NamedTuple):
    """Planes whose channels an image holds, and pixels between them, if that is known."""

    n_planes: int = 1
    z_spacing: float | None = None


FLAT = Volume()


def _known_orbit(orbit: Any) -> Any:
    if orbit is None or orbit == "d4" or (is_whole(orbit) and int(orbit) <= MOST_TURNS):
        return orbit
    raise ConfigError(f"input should be d4 or a number of angles, 1 to {MOST_TURNS}")


@cache
def _networks() -> tuple[str, ...]:
    """List torchvision's networks with weights of ImageNet; it takes a tenth of a second."""
    from torchvision import models

    names = models.list_models(module=models)
    return tuple(name for name in names if hasattr(models.get_model_weights(name), "IMAGENET1K_V1"))


def _known_network(name: str) -> str:
    if name in _networks():
        return name
    banks = [kind for kind in BANK_SCHEMAS if kind != "convnet"]
    [near] = get_close_matches(name, [*banks, *_networks()], n=1, cutoff=0)
    raise ConfigError(
        f"neither one of segkit's banks ({', '.join(banks)}) nor a network of torchvision (vgg16, vgg19, squeezenet1_0, "
        f"resnet18 and more): the nearest is {near}"
    )


class BankOptions(Section):
    """The options of a bank: parameters of its constructor, its name, and the normalisation of `StackedBank`."""

    name: str
    normalization: Literal["image", "set"] = "image"

    def describe(self, seed: int, volume: Volume) -> dict[str, Any]:  # noqa: ARG002
        """Describe the bank as `bank_from_dict` takes it; what is random is drawn from the seed."""
        kind = kind_of(self.name)
        seeded = {"random_state": seed} if "random_state" in options_of(kind) else {}
        return {"kind": kind} | self.model_dump(exclude={"name"}) | seeded

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:
        """Make the bank."""
        return bank_from_dict(self.describe(seed, volume))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an option of a constructor."""


class _ConvNetOptions(BankOptions):
    """`name` is torchvision's of the network."""

    name: Annotated[str, AfterValidator(_known_network)]

    def describe(self, seed: int, volume: Volume) -> dict[str, Any]:
        return super().describe(seed, volume) | {"network": self.name}


class _VolumeOptions(BankOptions):
    """Without `z_spacing` the images tell how far planes are apart."""

    z_spacing: Annotated[float, Field(gt=0, le=1000)] | None = None

    def describe(self, seed: int, volume: Volume) -> dict[str, Any]:
        if volume.n_planes == 1:
            raise ConfigError(
                "the volume bank needs the planes around each: add data.context=k, 3 sigma_max planes for exact filters, or "
                "take the multiscale bank"
            )
        z_spacing = self.z_spacing or volume.z_spacing
        if z_spacing is None:
            raise ConfigError(
                "the volume bank: the images do not tell how far planes are apart, or differ: give z_spacing of that bank, "
                "the distance of planes divided by the width of a pixel"
            )
        return super().describe(seed, volume) | {"n_planes": volume.n_planes, "z_spacing": z_spacing}


class _OrbitOptions(BankOptions):
    @model_validator(mode="after")
    def _fits_nonlinearity(self) -> Self:
        under = f"{{at}}nonlinearity={self.nonlinearity}"
        if self.nonlinearity == "step":
            self.refuse_idle(["gamma"], under=under, cure="{at}nonlinearity=fourier")
        else:
            self.refuse_idle(["thresholds"], under=under, cure="{at}nonlinearity=step")
        return self


_Orbit = Annotated[Any, AfterValidator(_known_orbit)]
_SPECIAL: dict[str, type[BankOptions]] = {
    "convnet": _ConvNetOptions,
    "volume": _VolumeOptions,
    "orbit": _OrbitOptions,
}


def schema_of(kind: str) -> type[BankOptions]:
    """Make the schema of a bank from its constructor."""
    base = _SPECIAL.get(kind, BankOptions)
    fields: dict[str, Any] = {"name": (Literal[kind], kind)}
    fields |= fields_of(options_of(kind), without=_NO_OPTIONS | base.model_fields.keys())
    if kind == "convnet":  # its name is the network's
        del fields["name"], fields["network"]
    if kind not in _INVARIANT:
        fields["orbit"] = (_Orbit, None)
    return create_model(f"{kind}_options", __base__=base, **fields)


def fields_of(options: Mapping[str, Parameter], *, without: Collection[str]) -> dict[str, Any]:
    """Make the fields of a schema from the parameters of a constructor."""
    hints = {name: _in_yaml(option.annotation) for name, option in options.items() if name not in without}
    return {
        name: (hint, TypeAdapter(hint).validate_python(plain(options[name].default)))
        for name, hint in hints.items()
    }


def _in_yaml(hint: Any) -> Any:
    """Leave the objects that YAML has no form for out of a type; sequences are tuples, which nobody changes."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[_in_yaml(parts[0]), *parts[1:]]
    if origin is Sequence:
        return tuple[_in_yaml(parts[0]), ...]  # type: ignore[misc]
    if origin in (Union, UnionType):
        known = [part for part in parts if not isinstance(part, type) or part.__module__ == "builtins"]
        return reduce(or_, map(_in_yaml, known))
    return hint


BANK_SCHEMAS = {kind: schema_of(kind) for kind in BANKS}


def kind_of(value: Any) -> str:
    """Return the kind of a bank, of its options or its name; options without a name are of the default, stacked bank."""
    name = value.get("name", "stacked") if isinstance(value, Mapping) else value
    return name if isinstance(name, str) and name in BANK_SCHEMAS else "convnet"


def _read_bank(value: Any, _: Any) -> BankOptions:
    return value if isinstance(value, BankOptions) else BANK_SCHEMAS[kind_of(value)].model_validate(value)


def _read_part(value: Any, _: Any) -> BankOptions:
    bank = _read_bank(value, _)
    if bank.name == "stacked":
        raise PydanticCustomError("bank", "a stacked bank inside a stacked bank")
    return bank


def _options_in(bank: FilterBank) -> BankOptions:
    """Return the options that make a bank."""
    given = bank_to_dict(bank)
    kind = given.pop("kind")
    return BANK_SCHEMAS[kind](name=kind, **{name: given[name] for name in given.keys() - _NO_OPTIONS})


_Part = Annotated[SerializeAsAny[BankOptions], WrapValidator(_read_part)]


class StackedOptions(BankOptions):
    """Several banks as one (`StackedBank`); each is a mapping of its bank's options."""

    name: Literal["stacked"] = "stacked"
    banks: Annotated[tuple[_Part, ...], Field(min_length=1, max_length=100)] = tuple(
        map(_options_in, default_bank().banks)
    )
    orbit: _Orbit = None

    def describe(self, seed: int, volume: Volume) -> dict[str, Any]:
        """Describe the banks; see `BankOptions.describe`."""
        banks = [bank.describe(seed, volume) for bank in self.banks]
        return self.model_dump(exclude={"name"}) | {"kind": "stacked", "banks": banks}


BANK_SCHEMAS["stacked"] = StackedOptions
BankConfig = Annotated[SerializeAsAny[BankOptions], WrapValidator(_read_bank)]
BanksConfig = Annotated[
    Annotated[BankConfig, Tag("bank")]
    | Annotated[tuple[BankConfig, ...], Field(min_length=1, max_length=100), Tag("choice")],
    Discriminator(lambda value: "choice" if isinstance(value, list | tuple) else "bank"),
]
