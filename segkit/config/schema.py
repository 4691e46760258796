"""The options of a run: one typed schema, defaults < YAML file < ``--set key=value``.

Every key of a configuration file is a field below or, of a bank, mostly a parameter of its constructor, and its comment
in ``configs/`` describes it. A key that does not exist is an error that names the nearest one that does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    model_validator,
)
from pydantic import ValidationError as SchemaError

from segkit.classifier.svm import LinearSVM
from segkit.config.banks import (
    BANK_SCHEMAS,
    BanksConfig,
    StackedOptions,
    Volume,
    kind_of,
)
from segkit.config.faults import Section, deepest, explain_value, locate, shown
from segkit.config.read import read_options
from segkit.errors import ConfigError, InputError
from segkit.images import Dataset, PixelSize, Reading, load_pairs
from segkit.images.matching import check_pattern
from segkit.images.pixel_size import check_pixel_size
from segkit.kernels import KernelMixture, LinearGaussianMixture, LinearMixture, MixtureRFF
from segkit.segmentation.segmenter import ALPHAS, SELECTION_TOL, Segmenter
from segkit.selection import ConditionalCovarianceSelector, MMDSelector

# Far above what is useful: beyond it a run would not end, or fill the memory.
Whole = Annotated[int, Field(gt=0, le=100_000)]
# Features of more training pixels than this fill the memory of any machine.
MOST_PIXELS = 10_000_000


class SelectionConfig(Section):
    """Selection of channels (`MMDSelector` or `ConditionalCovarianceSelector`)."""

    method: Literal["mmd", "ccm"] = "mmd"
    n_features: Whole | None = None
    pixels: Annotated[int, Field(ge=20, le=MOST_PIXELS)] = 6000

    def build(self) -> MMDSelector | ConditionalCovarianceSelector:
        """Make the selector; its seed is the segmenter's."""
        given: dict[str, Any] = {} if self.n_features is None else {"n_features_to_select": self.n_features}
        if self.method == "mmd":
            return MMDSelector(**given)
        return ConditionalCovarianceSelector(**given, tol=SELECTION_TOL)


class KernelConfig(Section):
    """The mixture of kernels and its features: `LinearGaussianMixture`, `LinearMixture`, or `MixtureRFF` of one family."""

    family: Literal["linear+gaussian", "linear", "gaussian", "laplacian", "anova", "polynomial"] = (
        "linear+gaussian"
    )
    gammas: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=100)] | None = None
    n_components: Whole | None = None
    criterion: Literal["mmd", "u_statistic", "alignment", "centered_alignment", "power"] = "mmd"

    @model_validator(mode="after")
    def _fits_family(self) -> Self:
        used = {
            "linear": (),
            "linear+gaussian": ("gammas", "n_components"),
            "polynomial": ("n_components", "criterion"),
        }
        if self.family in used:
            idle = [name for name in type(self).model_fields if name not in ("family", *used[self.family])]
            self.refuse_idle(
                idle, under=f"{{at}}family={self.family}", cure="{at}family to gaussian or laplacian"
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


class SVMConfig(Section):
    """The classifier (`LinearSVM`); without C, held-out images choose the penalty among the alphas."""

    C: PositiveFloat | None = None
    alphas: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=100)] = ALPHAS
    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"

    @model_validator(mode="after")
    def _one_penalty_or_several(self) -> Self:
        if self.C is not None:
            self.refuse_idle(["alphas"], under=f"{{at}}C={self.C:g}", cure="{at}C=null")
        return self

    def build(self) -> LinearSVM:
        """Make the classifier."""
        return LinearSVM(**self.model_dump(exclude={"alphas"}, exclude_none=True))


class TrainingConfig(Section):
    """Training pixels, whether their channels are standardised, threshold, probabilities, and weights in the model file."""

    pixels: Annotated[int, Field(ge=20, le=MOST_PIXELS)] = 20_000
    standardise: bool = True
    threshold: Literal["quantile+otsu", "quantile", "iou", "zero"] = "quantile+otsu"
    smallest_region: Annotated[float, Field(ge=0, le=1)] = 0.5
    probability: Literal["calibrated", "raw"] = "calibrated"
    embed_weights: bool = True


def _known_range(given: Any) -> Any:
    if isinstance(given, dict) and given.keys() == {"percentiles"}:  # percentiles: 1..99 is a mapping in YAML
        given = f"percentiles: {given['percentiles']}"
    return _reading_option("range", str(given)) if given is not None else None


def _reading_option(name: str, value: Any) -> Any:
    return getattr(Reading(**{name: value}), name)


# A decimal comma, or commas or points between thousands.
_MAY_BE_ONE_NUMBER = re.compile(r"\d+,\d+|\d{1,3}(\.\d{3})+,\d+|\d{1,3}(,\d{3})+\.\d+")


def _known_size(given: Any) -> PixelSize | None:
    """Read the side of a pixel, or its height and width: a list, or numbers with a comma in between."""
    if isinstance(given, str) and _MAY_BE_ONE_NUMBER.fullmatch(given.strip()):
        raise InputError(
            f"pixel size {given}: write a number with a point, such as 0.5, or height and width as [0.65, 0.325]"
        )
    sizes: Any = given.split(",") if isinstance(given, str) else given
    return None if given is None else check_pixel_size(sizes)


def _known_channels(given: Any) -> tuple[str, ...]:
    """Read names or numbers of channels: a list, or with commas in between; none are all."""
    if given in (None, ""):
        return ()
    words = (
        given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]
    )
    if odd := [word for word in words if isinstance(word, bool) or not isinstance(word, str | int)]:
        raise InputError(f"channels {odd[0]!r}: give names in quotes, or numbers, such as DAPI,GFP or 1,3")
    return Reading(selected=tuple(str(word).strip() for word in words)).selected


def _known_pattern(given: str | None) -> str | None:
    if given is not None:
        check_pattern(given)
    return given


class DataConfig(Section):
    """Reading of images, and meaning of masks: names of the classes, the value of unlabelled pixels, and objects.

    `channels` are those that are read, by name or number; by default all. `level` is that of a pyramid, and makes an image
    be read by region. `pixel_size` is in micrometres. `only_annotated` leaves out images without a mask, and masks without
    a labelled pixel. `pair` says what images and masks of different names are called.
    """

    axes: Annotated[str, AfterValidator(partial(_reading_option, "axes"))] | None = None
    range: Annotated[str | None, BeforeValidator(_known_range)] = None
    context: Annotated[int, BeforeValidator(partial(_reading_option, "context"))] = 0
    channels: Annotated[tuple[str, ...], BeforeValidator(_known_channels)] = ()
    level: Annotated[int, Field(ge=0)] | None = None
    pixel_size: Annotated[PixelSize | None, BeforeValidator(_known_size)] = None

    labels: dict[NonNegativeInt, str] | None = None
    unlabelled: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    masks: Literal["instances", "classes"] | None = None
    instances: Path | None = None
    only_annotated: bool = False
    pair: Annotated[str | None, AfterValidator(_known_pattern)] = None

    @property
    def reading(self) -> Reading:
        """How images are read."""
        return Reading(self.axes, self.range, self.context, selected=self.channels)

    @property
    def meanings(self) -> dict[str, Any]:
        """What mask values mean, as `segkit.images.load_pairs` takes it."""
        return {"labels": self.labels, "unlabelled": self.unlabelled, "masks_are": self.masks}

    def load_pairs(self, images: Path, masks: Path) -> Dataset:
        """Read annotated images as these options say."""
        dataset = load_pairs(
            images,
            masks,
            **self.meanings,
            instances=self.instances,
            only_annotated=self.only_annotated,
            pattern=self.pair,
            reading=self.reading,
        )
        if self.pixel_size is None:
            return dataset
        return replace(dataset, pixel_sizes=[self.pixel_size] * len(dataset.pixel_sizes))

    def refuse_others(self, *known: str, here: str = "here") -> None:
        """Refuse options that a command does not know."""
        if others := sorted(self.model_dump(exclude_defaults=True).keys() - set(known)):
            raise ConfigError(
                f"data.{others[0]}: only {', '.join(known)} of data can be given {here}: leave it out"
            )


class ObjectsConfig(Section):
    """Changes by hand of objects: depth in radii, least area in pixels, whether holes are filled, least mean probability."""

    depth: Annotated[float, Field(ge=0)] | None = None
    smallest: Annotated[float, Field(ge=0)] | None = None
    fill_holes: bool | None = None
    least_probability: Annotated[float, Field(ge=0, le=1)] | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The arguments of `Segmenter.with_objects`."""
        given = self.model_dump()
        return {"split": given.pop("depth"), **given}

    @classmethod
    def load(cls, overrides: Iterable[str]) -> Self:
        """Read ``objects.key=value``; a ConfigError says that a key or value does not exist or fit."""
        options = read_options(None, overrides).get("objects", {})
        try:
            return cls.model_validate(options)
        except SchemaError as error:
            fault = error.errors()[0]
            key = ".".join(map(str, ("objects", *fault["loc"])))
            if fault["type"] == "extra_forbidden":
                raise ConfigError(f"unknown key {key}: there are {', '.join(cls.model_fields)}") from error
            raise ConfigError(explain_value(fault, ["objects", *map(str, fault["loc"])])) from error


class Config(Section):
    """All options of a run. Among several banks in a list, held-out images choose."""

    bank: BanksConfig = Field(default_factory=StackedOptions)
    selection: SelectionConfig = SelectionConfig()
    kernel: KernelConfig = KernelConfig()
    svm: SVMConfig = SVMConfig()
    training: TrainingConfig = TrainingConfig()
    data: DataConfig = DataConfig()
    objects: ObjectsConfig = ObjectsConfig()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @classmethod
    def load(cls, path: Path | None = None, overrides: Iterable[str] = ()) -> Self:
        """Read a configuration: the defaults, a YAML file, and ``key=value`` with a dotted key and a YAML value.

        The latter win over the former. A ConfigError says that the file cannot be read, or that a key or value does not
        exist or fit.
        """
        return cls.from_options(read_options(path, overrides))

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Check nested options against the schema; a ConfigError says that a key or value does not exist or fit."""
        try:
            return cls.model_validate(options)
        except SchemaError as error:
            raise ConfigError(_explain(deepest(error.errors(), options), options)) from error

    def build(self, *, z_spacing: float | None = None) -> Segmenter:
        """Make the segmenter that these options describe, not fitted.

        `z_spacing` is the distance of the planes of stacks divided by the width of a pixel, as in
        `segkit.images.Dataset`; the option of a bank wins. A ConfigError says that a bank of three dimensions lacks planes,
        or their distance.
        """
        bank, volume = self.bank, Volume(self.data.reading.n_planes, z_spacing)
        return Segmenter(
            [one.build(self.seed, volume) for one in bank]
            if isinstance(bank, tuple)
            else bank.build(self.seed, volume),
            selector=self.selection.build(),
            kernels=self.kernel.build(),
            svm=self.svm.build(),
            alphas=self.svm.alphas if self.svm.C is None else None,
            selection_pixels=self.selection.pixels,
            standardise=self.training.standardise,
            training_pixels=self.training.pixels,
            threshold=self.training.threshold,
            smallest_region=self.training.smallest_region,
            probability=self.training.probability,
            random_state=self.seed,
        )


def _explain(error: Any, options: Mapping[str, Any]) -> str:
    """Explain a fault that pydantic found in one line."""
    location, within = locate(error, options)
    key = ".".join(location)
    if error["type"] == "invalid_key":
        return f"key {error['loc'][-1]}: keys are names of options, such as bank or selection; mend or leave it out"
    if error["type"] == "extra_forbidden":
        return _explain_unknown(location, within[-1])
    if location[0] == "bank" and error["type"] in ("bank", "model_type", "too_short"):
        stacked = ", none of them stacked already" if "banks" in location else ""
        return f"{key}={shown(error['input'])}: give a bank such as {{name: multiscale}}, or a list of banks{stacked}"
    if error["type"] == "tuple_type":
        return f"{key}={shown(error['input'])}: give a list; only items of one given before can be set one by one"
    return explain_value(error, location)


def _explain_unknown(location: list[str], section: Mapping[str, Any]) -> str:
    """Name the known key that is nearest to an unknown one."""
    *parents, unknown = location
    key, where = ".".join(location), ".".join(parents)
    if parents and unknown.isdecimal():
        return f"{key}: {where} is no list, whose items have numbers: leave the number out, or give {where} as a list"
    siblings = list(Config.model_fields)
    if parents and parents[0] == "bank":
        if owners := [name for name, schema in BANK_SCHEMAS.items() if unknown in schema.model_fields]:
            name = section.get("name", "stacked")
            for place, bank in enumerate(
                section.get("banks") or ()
            ):  # a stacked bank has it in one of its own
                if isinstance(bank, Mapping) and bank.get("name") in owners:
                    return f"{key} is no option of {where}.name={name}: give {where}.banks.{place}.{unknown}"
            return f"{key} is no option of {where}.name={name}, but of the {', '.join(owners)} bank: set {where}.name too"
        kinds = [kind_of(section)] if "name" in section else BANK_SCHEMAS
        siblings = list(dict.fromkeys(name for kind in kinds for name in BANK_SCHEMAS[kind].model_fields))
    elif parents:
        siblings = list(type(Config.model_fields[parents[0]].default).model_fields)
    near = get_close_matches(unknown, siblings, n=1, cutoff=0) or siblings[:1]
    nearest = ".".join([*parents, *near])
    return f"unknown key {key}: the nearest is {nearest}; there are {', '.join(siblings)}"
