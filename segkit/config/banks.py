"""The options of each filter bank."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Discriminator, Field, PositiveFloat, Tag, model_validator
from pydantic_core import PydanticCustomError

from segkit._common import is_whole
from segkit.config.faults import Section
from segkit.errors import ConfigError
from segkit.features import (
    ConvNetBank,
    ElongatedBank,
    FilterBank,
    ModuleBank,
    MultiscaleBank,
    OrbitAveraged,
    PositionBank,
    ScatteringBank,
    StackedBank,
    TimmBank,
    VolumeBank,
    bank_from_dict,
)
from segkit.features.registry import group_of
from segkit.features.timm import MOST_WINDOW

# Each option has an upper bound far above what is useful: beyond it a run would not end, or fill the memory.
_MOST_ANGLES = 360
Whole = Annotated[int, Field(gt=0, le=100_000)]
Scales = Annotated[int, Field(gt=0, le=10)]
Angles = Annotated[int, Field(gt=0, le=_MOST_ANGLES)]
Pixels = Annotated[float, Field(gt=0, le=256)]


class Volume(NamedTuple):
    """Planes whose channels an image holds, and pixels between them, if that is known."""

    n_planes: int = 1
    z_spacing: float | None = None


FLAT = Volume()


def _known_orbit(orbit: Any) -> Any:
    if orbit is None or orbit == "d4" or (is_whole(orbit) and int(orbit) <= _MOST_ANGLES):
        return orbit
    raise PydanticCustomError(
        "orbit", "input should be d4 or a number of angles, 1 to {most}", {"most": _MOST_ANGLES}
    )


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
    raise PydanticCustomError(
        "network",
        "neither one of segkit's banks ({banks}) nor a network of torchvision (vgg16, vgg19, squeezenet1_0, resnet18 "
        "and more): the nearest is {near}",
        {"banks": ", ".join(banks), "near": near},
    )


Orbit = Annotated[Any, AfterValidator(_known_orbit)]


class ConvNetConfig(Section):
    """A pre-trained network (`ConvNetBank`); `name` is torchvision's."""

    name: Annotated[str, AfterValidator(_known_network)]
    weights: str = "imagenet"
    preprocessing: Literal["torchvision", "caffe"] = "torchvision"
    channel_mode: Literal["rgb", "each", "mean"] = "rgb"
    layers: Annotated[tuple[str, ...], Field(min_length=1, max_length=100)] | None = None
    pyramid: Annotated[tuple[Annotated[float, Field(gt=0, le=8)], ...], Field(max_length=20)] = (1.0,)
    output_stride: Literal[8, 16, 32] | None = None
    embed_weights: bool = True
    orbit: Orbit = None

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:  # noqa: ARG002
        """Make the bank; random weights are drawn from the seed."""
        options = self.model_dump(exclude={"name", "embed_weights", "orbit"})
        return _averaged(ConvNetBank(self.name, **options, random_state=seed), self.orbit)


class TimmConfig(Section):
    """A network of timm (`TimmBank`)."""

    name: Literal["timm"]
    model: Annotated[str, Field(min_length=1, max_length=200)] = "vit_small_patch14_dinov2"
    weights: str = "pretrained"
    window: Annotated[int, Field(gt=0, le=MOST_WINDOW)] | None = None
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.5
    layers: Annotated[tuple[Annotated[int, Field(ge=-1000, lt=1000)], ...], Field(min_length=1)] | None = None
    pyramid: Annotated[tuple[Annotated[float, Field(gt=0, le=8)], ...], Field(max_length=20)] = (1.0,)
    channel_mode: Literal["rgb", "each", "mean"] = "rgb"
    embed_weights: bool = True
    orbit: Orbit = None

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:  # noqa: ARG002
        """Make the bank; random weights are drawn from the seed."""
        options = self.model_dump(exclude={"name", "embed_weights", "orbit"})
        return _averaged(TimmBank(**options, random_state=seed), self.orbit)


class ScatteringConfig(Section):
    """A scattering network (`ScatteringBank`)."""

    name: Literal["scattering"] = "scattering"
    J: Scales | Annotated[tuple[Scales, ...], Field(max_length=10)] = (1, 2, 3)
    L: Annotated[int, Field(gt=0, le=64)] = 8
    max_order: Literal[1, 2] = 2
    angles: Literal["each", "averaged"] = "each"
    frontend: Literal["numpy", "torch"] = "numpy"
    orbit: Orbit = None

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        options = self.model_dump(exclude={"name", "orbit"})
        return _averaged(ScatteringBank(**options), self.orbit)


class ModulesConfig(Section):
    """A module sequence (`ModuleBank`); each module is a mapping of `Module`'s options."""

    name: Literal["modules"]
    modules: Annotated[tuple[dict[str, Any], ...], Field(max_length=10)] | None = None
    orbit: Orbit = None

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        options = self.model_dump(exclude={"name", "orbit"}, exclude_none=True)
        return _averaged(ModuleBank(**options), self.orbit)


class MultiscaleConfig(Section):
    """Intensity, edges and texture at several blurs (`MultiscaleBank`); in three dimensions, `VolumeBank`."""

    name: Literal["multiscale"]
    sigma_min: Annotated[float, Field(ge=0.1, le=256)] = 1.0
    sigma_max: Pixels = 16.0
    dimension: Literal[2, 3] = 2
    z_spacing: Annotated[float, Field(gt=0, le=1000)] | None = None
    orbit: Orbit = None

    @model_validator(mode="after")
    def _fits_dimension(self) -> Self:
        if self.dimension == 2:
            self.refuse_idle(["z_spacing"], under="{at}dimension=2", cure="{at}dimension=3")
        return self

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        options = self.model_dump(include={"sigma_min", "sigma_max"})
        if self.dimension == 2:
            return _averaged(MultiscaleBank(**options), self.orbit)
        if volume.n_planes == 1:
            raise ConfigError(
                "dimension=3 of the multiscale bank needs the planes around each: add data.context=k, 3 sigma_max planes "
                "for exact filters, or leave dimension out"
            )
        z_spacing = self.z_spacing or volume.z_spacing
        if z_spacing is None:
            raise ConfigError(
                "dimension=3 of the multiscale bank: the images do not tell how far planes are apart, or differ: give "
                "z_spacing of that bank, the distance of planes divided by the width of a pixel"
            )
        return _averaged(VolumeBank(n_planes=volume.n_planes, z_spacing=z_spacing, **options), self.orbit)


class ElongatedConfig(Section):
    """Lines and edges of any direction (`ElongatedBank`)."""

    name: Literal["elongated"]
    sigmas: Annotated[tuple[Pixels, ...], Field(max_length=20)] = (1.0, 2.0, 4.0)
    channel_mode: Literal["mean", "each"] = "mean"
    orbit: Orbit = None

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        options = self.model_dump(exclude={"name", "orbit"})
        return _averaged(ElongatedBank(**options), self.orbit)


class PositionConfig(Section):
    """Distance of a pixel from the centre of its image (`PositionBank`)."""

    name: Literal["position"]

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        return PositionBank()


class OrbitConfig(Section):
    """Rotation-invariant random features of patches (`OrbitBank`)."""

    name: Literal["orbit"]
    patch_sizes: Annotated[tuple[Annotated[int, Field(gt=0, le=257)], ...], Field(max_length=20)] = (9, 17)
    n_templates: Whole = 64
    n_angles: Angles = 16
    reflections: bool = False
    scales: Annotated[tuple[Annotated[float, Field(gt=0, le=16)], ...], Field(max_length=20)] = (1.0,)
    templates: Literal["gaussian", "patches"] = "gaussian"
    nonlinearity: Literal["fourier", "step"] = "fourier"
    gamma: PositiveFloat = 1.0
    thresholds: Annotated[tuple[float, ...], Field(max_length=100)] = (-1.0, -0.5, 0.0, 0.5, 1.0)
    stride: Annotated[int, Field(gt=0, le=1024)] = 1

    @model_validator(mode="after")
    def _fits_nonlinearity(self) -> Self:
        under = f"{{at}}nonlinearity={self.nonlinearity}"
        if self.nonlinearity == "step":
            self.refuse_idle(["gamma"], under=under, cure="{at}nonlinearity=fourier")
        else:
            self.refuse_idle(["thresholds"], under=under, cure="{at}nonlinearity=step")
        return self

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:  # noqa: ARG002
        """Make the bank; its templates are drawn from the seed."""
        return bank_from_dict({"kind": "orbit", **self.model_dump(exclude={"name"}), "random_state": seed})


def _averaged(bank: FilterBank, orbit: Any) -> FilterBank:
    """Average a bank over an orbit, if there is one."""
    return bank if orbit is None else OrbitAveraged(bank, group=group_of(orbit))


def single_kind(value: Any) -> str:
    """Return the kind of a bank inside a stacked one; without a name it is scattering."""
    name = (
        value.get("name", "scattering")
        if isinstance(value, Mapping)
        else getattr(value, "name", "scattering")
    )
    return name if isinstance(name, str) and name in BANK_SCHEMAS else "convnet"


def bank_kind(value: Any) -> str:
    """Return the kind of a bank. Options that every bank has, without a name, are of the default, stacked bank."""
    unnamed = isinstance(value, Mapping) and "name" not in value
    return "stacked" if unnamed and value.keys() <= StackedConfig.model_fields.keys() else single_kind(value)


# Tags differ from keys ("modules" would be both), since faults are located by keys.
_SingleBank = (
    Annotated[ConvNetConfig, Tag("convnet bank")]
    | Annotated[ScatteringConfig, Tag("scattering bank")]
    | Annotated[ModulesConfig, Tag("modules bank")]
    | Annotated[MultiscaleConfig, Tag("multiscale bank")]
    | Annotated[ElongatedConfig, Tag("elongated bank")]
    | Annotated[OrbitConfig, Tag("orbit bank")]
    | Annotated[PositionConfig, Tag("position bank")]
    | Annotated[TimmConfig, Tag("timm bank")]
)


class StackedConfig(Section):
    """Several banks as one (`StackedBank`); each is a mapping of its bank's options."""

    name: Literal["stacked"] = "stacked"
    banks: Annotated[
        tuple[Annotated[_SingleBank, Discriminator(lambda value: f"{single_kind(value)} bank")], ...],
        Field(min_length=1, max_length=100),
    ] = (
        ScatteringConfig(name="scattering", J=3, L=4, angles="averaged"),
        MultiscaleConfig(name="multiscale"),
        ElongatedConfig(name="elongated"),
        PositionConfig(name="position"),
    )
    orbit: Orbit = None

    @property
    def embed_weights(self) -> bool:
        """Whether the model file holds the weights of the networks: only if every bank says so."""
        return all(getattr(bank, "embed_weights", True) for bank in self.banks)

    def build(self, seed: int, volume: Volume = FLAT) -> FilterBank:
        """Make the banks, and stack them."""
        return _averaged(StackedBank([bank.build(seed, volume) for bank in self.banks]), self.orbit)


BankConfig = Annotated[
    _SingleBank | Annotated[StackedConfig, Tag("stacked bank")],
    Discriminator(lambda value: f"{bank_kind(value)} bank"),
]
BanksConfig = Annotated[
    Annotated[BankConfig, Tag("bank")]
    | Annotated[tuple[BankConfig, ...], Field(min_length=1, max_length=100), Tag("choice")],
    Discriminator(lambda value: "choice" if isinstance(value, list | tuple) else "bank"),
]
BANK_SCHEMAS: dict[str, type[Section]] = {
    "convnet": ConvNetConfig,
    "scattering": ScatteringConfig,
    "modules": ModulesConfig,
    "multiscale": MultiscaleConfig,
    "elongated": ElongatedConfig,
    "orbit": OrbitConfig,
    "position": PositionConfig,
    "timm": TimmConfig,
    "stacked": StackedConfig,
}
