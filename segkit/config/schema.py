"""The options of a run: one typed schema, defaults < YAML file < ``--set key=value``.

Every key of a configuration file is a field below, and the field's comment in ``configs/`` says
what it does. A key that does not exist is an error that names the nearest one that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    model_validator,
)
from pydantic import ValidationError as SchemaError
from pydantic_core import PydanticCustomError

from segkit._common import is_whole
from segkit.classifier.svm import LinearSVM
from segkit.config.read import locate, read_options
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
    bank_from_dict,
)
from segkit.features.registry import group_of
from segkit.kernels import KernelMixture, LinearGaussianMixture, LinearMixture, MixtureRFF
from segkit.segmentation.segmenter import LAMBDAS, SELECTION_TOL, Segmenter
from segkit.segmentation.threshold import RENAMED_THRESHOLDS
from segkit.selection import ConditionalCovarianceSelector, MMDSelector


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _known_orbit(orbit: Any) -> Any:
    if orbit is None or orbit == "d4" or is_whole(orbit):
        return orbit
    raise PydanticCustomError("orbit", "input should be d4 or a number of angles, 1 or more")


def _known_network(name: str) -> str:
    from torchvision import models

    classifiers = models.list_models(module=models)
    networks = [name for name in classifiers if hasattr(models.get_model_weights(name), "IMAGENET1K_V1")]
    if name in networks:
        return name
    banks = [kind for kind in _BANK_SCHEMAS if kind != "convnet"]
    [near] = get_close_matches(name, [*banks, *networks], n=1, cutoff=0)
    raise PydanticCustomError(
        "network",
        "neither one of segkit's banks ({banks}) nor a network of torchvision (vgg16, vgg19, squeezenet1_0, resnet18 "
        "and more): the nearest is {near}",
        {"banks": ", ".join(banks), "near": near},
    )


Orbit = Annotated[Any, AfterValidator(_known_orbit)]
OrbitEmbedding = Literal["mean", "moments"]


class ConvNetConfig(_Section):
    """A pre-trained network (`ConvNetBank`); `name` is torchvision's."""

    name: Annotated[str, AfterValidator(_known_network)]
    weights: str = "imagenet"
    preprocessing: Literal["torchvision", "caffe"] = "torchvision"
    channel_mode: Literal["rgb", "each", "mean"] = "rgb"
    layers: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    pyramid: tuple[PositiveFloat, ...] = (1.0,)
    embed_weights: bool = True
    orbit: Orbit = None
    orbit_embedding: OrbitEmbedding = "mean"

    def build(self, seed: int) -> FilterBank:
        """Make the bank; random weights are drawn from the seed."""
        options = self.model_dump(exclude={"name", "embed_weights", "orbit", "orbit_embedding"})
        return _averaged(ConvNetBank(self.name, **options, random_state=seed), self)


class ScatteringConfig(_Section):
    """A scattering network (`ScatteringBank`)."""

    name: Literal["scattering"] = "scattering"
    J: PositiveInt | tuple[PositiveInt, ...] = (1, 2, 3)
    L: PositiveInt = 8
    max_order: Literal[1, 2] = 2
    angles: Literal["each", "averaged"] = "each"
    pixels: bool = True
    tile: PositiveInt | None = None
    frontend: Literal["numpy", "torch"] = "numpy"
    orbit: Orbit = None
    orbit_embedding: OrbitEmbedding = "mean"

    def build(self, seed: int) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        options = self.model_dump(exclude={"name", "orbit", "orbit_embedding"})
        return _averaged(ScatteringBank(**options), self)


class ModulesConfig(_Section):
    """A module sequence (`ModuleBank`); each module is a mapping of `Module`'s options."""

    name: Literal["modules"]
    modules: tuple[dict[str, Any], ...] | None = None
    frequency_decreasing: bool = True
    orbit: Orbit = None
    orbit_embedding: OrbitEmbedding = "mean"

    def build(self, seed: int) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        options = self.model_dump(exclude={"name", "orbit", "orbit_embedding"}, exclude_none=True)
        return _averaged(ModuleBank(**options), self)


class MultiscaleConfig(_Section):
    """Intensity, edges and texture at several blurs (`MultiscaleBank`)."""

    name: Literal["multiscale"]
    sigma_min: PositiveFloat = 1.0
    sigma_max: PositiveFloat = 16.0
    orbit: Orbit = None
    orbit_embedding: OrbitEmbedding = "mean"

    def build(self, seed: int) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        options = self.model_dump(exclude={"name", "orbit", "orbit_embedding"})
        return _averaged(MultiscaleBank(**options), self)


class ElongatedConfig(_Section):
    """Lines and edges of any direction (`ElongatedBank`)."""

    name: Literal["elongated"]
    sigmas: tuple[PositiveFloat, ...] = (1.0, 2.0, 4.0)
    elongation: Annotated[float, Field(ge=1)] = 3.0
    n_angles: Annotated[int, Field(ge=2)] = 8
    channel_mode: Literal["mean", "each"] = "mean"
    orbit: Orbit = None
    orbit_embedding: OrbitEmbedding = "mean"

    def build(self, seed: int) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        options = self.model_dump(exclude={"name", "orbit", "orbit_embedding"})
        return _averaged(ElongatedBank(**options), self)


class PositionConfig(_Section):
    """How far a pixel is from the centre of its picture (`PositionBank`)."""

    name: Literal["position"]

    def build(self, seed: int) -> FilterBank:  # noqa: ARG002
        """Make the bank; it has nothing random."""
        return PositionBank()


class OrbitConfig(_Section):
    """Rotation-invariant random features of patches (`OrbitBank`)."""

    name: Literal["orbit"]
    patch_sizes: tuple[PositiveInt, ...] = (9, 17)
    n_templates: PositiveInt = 64
    n_angles: PositiveInt = 16
    reflections: bool = False
    scales: tuple[PositiveFloat, ...] = (1.0,)
    templates: Literal["gaussian", "patches", "whitened"] = "gaussian"
    nonlinearity: Literal["fourier", "step", "nystroem"] = "fourier"
    gamma: PositiveFloat = 1.0
    thresholds: tuple[float, ...] = (-1.0, -0.5, 0.0, 0.5, 1.0)
    smoothing: Annotated[float, Field(ge=0.5)] = 0.7
    floor: PositiveFloat = 0.02
    stride: PositiveInt = 1

    def build(self, seed: int) -> FilterBank:
        """Make the bank; its templates are drawn from the seed."""
        return bank_from_dict({"kind": "orbit", **self.model_dump(exclude={"name"}), "random_state": seed})


def _averaged(
    bank: FilterBank,
    section: ConvNetConfig
    | ScatteringConfig
    | ModulesConfig
    | MultiscaleConfig
    | ElongatedConfig
    | StackedConfig,
) -> FilterBank:
    """Average a bank over the orbit that its section asks for, if any."""
    if section.orbit is None:
        return bank
    return OrbitAveraged(bank, group=group_of(section.orbit), embedding=section.orbit_embedding)


def _single_kind(value: Any) -> str:
    """Kind of a bank that is not stacked; without a name it is the scattering bank."""
    name = (
        value.get("name", "scattering")
        if isinstance(value, Mapping)
        else getattr(value, "name", "scattering")
    )
    return name if name in _BANK_SCHEMAS and name != "convnet" else "convnet"


def _bank_kind(value: Any) -> str:
    """Kind of a bank; what any bank understands, without a name, is for the default one, which is stacked."""
    unnamed = isinstance(value, Mapping) and "name" not in value
    return "stacked" if unnamed and value.keys() <= StackedConfig.model_fields.keys() else _single_kind(value)


_SingleBank = (
    Annotated[ConvNetConfig, Tag("convnet")]
    | Annotated[ScatteringConfig, Tag("scattering")]
    | Annotated[ModulesConfig, Tag("modules")]
    | Annotated[MultiscaleConfig, Tag("multiscale")]
    | Annotated[ElongatedConfig, Tag("elongated")]
    | Annotated[OrbitConfig, Tag("orbit")]
    | Annotated[PositionConfig, Tag("position")]
)


class StackedConfig(_Section):
    """Several banks as one (`StackedBank`); each is a mapping of its bank's options."""

    name: Literal["stacked"] = "stacked"
    banks: Annotated[tuple[Annotated[_SingleBank, Discriminator(_single_kind)], ...], Field(min_length=1)] = (
        ScatteringConfig(name="scattering", J=3, L=4, angles="averaged"),
        MultiscaleConfig(name="multiscale"),
        ElongatedConfig(name="elongated"),
        PositionConfig(name="position"),
    )
    orbit: Orbit = None
    orbit_embedding: OrbitEmbedding = "mean"

    @property
    def embed_weights(self) -> bool:
        """Whether the model file holds the weights of the networks: if all of them say so."""
        return all(getattr(bank, "embed_weights", True) for bank in self.banks)

    def build(self, seed: int) -> FilterBank:
        """Make the banks, and one of them all."""
        return _averaged(StackedBank([bank.build(seed) for bank in self.banks]), self)


BankConfig = Annotated[
    _SingleBank | Annotated[StackedConfig, Tag("stacked")],
    Discriminator(_bank_kind),
]
BanksConfig = Annotated[
    Annotated[BankConfig, Tag("bank")]
    | Annotated[tuple[BankConfig, ...], Field(min_length=1), Tag("choice")],
    Discriminator(lambda value: "choice" if isinstance(value, list | tuple) else "bank"),
]
_BANK_SCHEMAS: dict[str, type[_Section]] = {
    "convnet": ConvNetConfig,
    "scattering": ScatteringConfig,
    "modules": ModulesConfig,
    "multiscale": MultiscaleConfig,
    "elongated": ElongatedConfig,
    "orbit": OrbitConfig,
    "position": PositionConfig,
    "stacked": StackedConfig,
}


class SelectionConfig(_Section):
    """Which channels are kept (`MMDSelector` or `ConditionalCovarianceSelector`)."""

    method: Literal["mmd", "ccm"] = "mmd"
    n_features: PositiveInt | None = None
    pixels: Annotated[int, Field(ge=20)] = 6000
    n_components: PositiveInt = 512
    epsilon: Annotated[float, Field(ge=1e-9)] | None = None
    tol: PositiveFloat = SELECTION_TOL

    def build(self) -> MMDSelector | ConditionalCovarianceSelector:
        """Make the selector; its seed is the segmenter's."""
        if self.method == "mmd":
            return MMDSelector() if self.n_features is None else MMDSelector(self.n_features)
        return ConditionalCovarianceSelector(
            n_features_to_select=128 if self.n_features is None else self.n_features,
            n_components=self.n_components,
            epsilon=self.epsilon,
            tol=self.tol,
        )


class KernelConfig(_Section):
    """The mixture of kernels and its features (`LinearGaussianMixture`, `LinearMixture` or `MixtureRFF`)."""

    family: Literal["linear+gaussian", "linear", "gaussian", "laplacian"] = "linear+gaussian"
    gammas: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] | None = None
    n_components: PositiveInt | None = None
    criterion: Literal["mmd", "alignment", "centered_alignment", "power"] = "mmd"
    form: Literal["concatenate", "sample"] = "concatenate"
    features: Literal["pair", "phase"] = "pair"

    @model_validator(mode="after")
    def _fits_family(self) -> Self:
        fields = type(self).model_fields
        given = {name for name in fields if getattr(self, name) != fields[name].default} - {"family"}
        if self.family == "linear" and given:
            raise PydanticCustomError(
                "linear",
                "{names} only matter to random features: set another kernel.family",
                {"names": ", ".join(sorted(given))},
            )
        if self.family == "linear+gaussian" and (others := given - {"gammas", "n_components"}):
            raise PydanticCustomError(
                "linear_gaussian",
                "{names} only matter to a mixture of random features alone: set kernel.family=gaussian or laplacian too",
                {"names": ", ".join(sorted(others))},
            )
        return self

    def build(self) -> KernelMixture:
        """Make the transformer; its seed is the segmenter's."""
        if self.family == "linear":
            return LinearMixture()
        options = self.model_dump(exclude={"family"}, exclude_none=True)
        if self.family == "linear+gaussian":
            return LinearGaussianMixture(
                **{key: options[key] for key in ("gammas", "n_components") if key in options}
            )
        return MixtureRFF(self.family, **options)


class SVMConfig(_Section):
    """The classifier (`LinearSVM`), and the penalties to choose from unless C is given."""

    C: PositiveFloat | None = None
    lambdas: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = LAMBDAS
    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"
    class_weight: Literal["balanced"] | dict[int, float] | None = None
    memory_limit: PositiveInt = 2**30

    def build(self) -> LinearSVM:
        """Make the classifier."""
        return LinearSVM(**self.model_dump(exclude={"lambdas"}, exclude_none=True))


def _known_threshold(rule: Any) -> Any:
    if isinstance(rule, str) and rule in RENAMED_THRESHOLDS:
        raise PydanticCustomError("renamed", "it is called {name} now", {"name": RENAMED_THRESHOLDS[rule]})
    return rule


ThresholdRule = Annotated[
    Literal["quantile+otsu", "quantile", "iou", "zero"], BeforeValidator(_known_threshold)
]


class TrainingConfig(_Section):
    """How much the classifier sees, and what its probabilities mean."""

    pixels: Annotated[int, Field(ge=20)] = 20_000
    normalization: Literal["image", "set"] = "image"
    threshold: ThresholdRule = "quantile+otsu"
    smallest_region: Annotated[float, Field(ge=0, le=1)] = 0.5
    probability: Literal["platt", "raw"] = "platt"


class DataConfig(_Section):
    """What mask values mean: names of the classes, and the value of unlabelled pixels."""

    labels: dict[NonNegativeInt, str] | None = None
    unlabelled: NonNegativeInt | None = None


class Config(_Section):
    """All options of a run; of several banks in a list, held-out images choose."""

    bank: BanksConfig = Field(default_factory=StackedConfig)
    selection: SelectionConfig = SelectionConfig()
    kernel: KernelConfig = KernelConfig()
    svm: SVMConfig = SVMConfig()
    training: TrainingConfig = TrainingConfig()
    data: DataConfig = DataConfig()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @classmethod
    def load(cls, path: Path | None = None, overrides: Iterable[str] = ()) -> Self:
        """Read a configuration.

        Parameters
        ----------
        path : Path, optional
            YAML file; the defaults where it is silent.
        overrides : iterable of str
            ``key=value`` with a dotted key and a YAML value; they win over the file.

        Returns
        -------
        Config
            Checked against the schema.

        Raises
        ------
        ConfigError
            If the file cannot be read, or a key or value does not exist or fit.
        """
        return cls.from_options(read_options(path, overrides))

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Check nested options against the schema.

        Raises
        ------
        ConfigError
            If a key or value does not exist or fit.
        """
        try:
            return cls.model_validate(options)
        except SchemaError as error:
            raise ConfigError(_explain(error.errors()[0], options)) from error

    def embeds_weights(self, index: int) -> bool:
        """Whether the model file holds the weights of the networks: as the bank at a place in the list says."""
        bank = self.bank[index] if isinstance(self.bank, tuple) else self.bank
        return bool(getattr(bank, "embed_weights", True))

    def build(self) -> Segmenter:
        """Make the segmenter that these options describe."""
        bank = self.bank
        return Segmenter(
            [one.build(self.seed) for one in bank] if isinstance(bank, tuple) else bank.build(self.seed),
            selector=self.selection.build(),
            kernels=self.kernel.build(),
            svm=self.svm.build(),
            lambdas=self.svm.lambdas if self.svm.C is None else None,
            normalization=self.training.normalization,
            selection_pixels=self.selection.pixels,
            training_pixels=self.training.pixels,
            threshold=self.training.threshold,
            smallest_region=self.training.smallest_region,
            probability=self.training.probability,
            random_state=self.seed,
        )


def _explain(error: Any, options: Mapping[str, Any]) -> str:
    """One sentence for the first fault pydantic found."""
    location, within = locate(error, options)
    key = ".".join(location)
    if error["type"] == "extra_forbidden":
        return _explain_unknown(location, within[-1])
    if location[0] == "bank" and error["type"] in ("model_type", "too_short", "union_tag_invalid"):
        stacked = ", none of them stacked already" if "banks" in location else ""
        return (
            f"{key}={error['input']!r}: give a bank such as {{name: multiscale}}, or a list of banks{stacked}"
        )
    if error["type"] == "tuple_type":
        return f"{key}={error['input']!r}: give a list; only items of one given before can be set one by one"
    return f"{key}={error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


def _explain_unknown(location: list[str], section: Mapping[str, Any]) -> str:
    """Name what an unknown key may have meant."""
    *parents, unknown = location
    key, where = ".".join(location), ".".join(parents)
    if parents and unknown.isdecimal():
        return f"{key}: {where} is no list, whose items have numbers: leave the number out, or give {where} as a list"
    siblings = list(Config.model_fields)
    if parents and parents[0] == "bank":
        may_be_stacked = parents == ["bank"] or (len(parents) == 2 and parents[1].isdecimal())
        kind = _bank_kind(section) if may_be_stacked else _single_kind(section)
        siblings = list(_BANK_SCHEMAS[kind].model_fields)
        if owners := [name for name, schema in _BANK_SCHEMAS.items() if unknown in schema.model_fields]:
            name = section.get("name", kind)
            return f"{key} is no option of {where}.name={name}, but of the {', '.join(owners)} bank: set {where}.name too"
        if "name" not in section:  # of a bank that is not named the key may be any bank's
            kinds = [siblings, *(list(schema.model_fields) for schema in _BANK_SCHEMAS.values())]
            [closest] = get_close_matches(unknown, [name for names in kinds for name in names], n=1, cutoff=0)
            siblings = next(names for names in kinds if closest in names)
    elif parents:
        siblings = list(type(Config.model_fields[parents[0]].default).model_fields)
    near = get_close_matches(unknown, siblings, n=1, cutoff=0) or siblings[:1]
    nearest = ".".join([*parents, *near])
    return f"unknown key {key}: the nearest is {nearest}; there are {', '.join(siblings)}"
