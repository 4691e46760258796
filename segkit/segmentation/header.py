"""Type and range of each entry in the header of a model file, in the present format.

Unknown entries are ignored, so that an entry can be added without a new format.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from segkit.errors import ModelFileError
from segkit.images import UNLABELLED

MOST_IMAGE_CHANNELS = 10_000
MOST_BANKS = 16

Share = Annotated[float, Field(ge=0, le=1)]
# Masks are integers of up to 64 bits.
Value = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Pair = Annotated[list[NonNegativeFloat], Field(min_length=2, max_length=2)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
Scores = list[float | None]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class _Whole(_Part):
    model_config = ConfigDict(extra="forbid")


class _Labels(_Part):
    values: Annotated[list[Value], Field(min_length=2, max_length=UNLABELLED)]
    names: list[str]
    unlabelled: Value | None
    others: list[list[Value]] = []


class _Kernel(_Part):
    kind: str
    name: str
    gamma: float | None
    weight: float
    score: float | None


class _Region(_Part):
    image: NonNegativeInt | None
    mean_iou: float | None
    iou: Scores
    dice: Scores


class _BankScore(_Part):
    bank: str
    mean_iou: float
    chosen: bool


class _HeldOut(_Part):
    regions: Literal["images", "blocks"]
    n_regions: Count
    n_groups: Count | None = None
    mean_iou: float
    interval: Interval | None
    by_alpha: dict[str, float]
    usual: float
    scores: list[_Region]
    object_iou: float | None
    object_dice: float | None
    object_iou_interval: Interval | None
    object_dice_interval: Interval | None
    by_bank: list[_BankScore] | None

    @model_validator(mode="after")
    def _chooses_one(self) -> Self:
        if self.by_bank and sum(bank.chosen for bank in self.by_bank) != 1:
            raise PydanticCustomError("chosen", "one of by_bank must be chosen")
        return self


class _Summary(_Part):
    n_images: Count
    n_channels: Count
    kept_channels: dict[str, Count]
    kernels: list[_Kernel]
    training_iou: list[float]
    training_mean_iou: float
    training_set_sha256: str
    n_training_pixels: Count
    criterion: Literal["mmd", "u_statistic", "mmd_squared", "alignment", "centered_alignment", "power"]
    selector: str
    threshold: float
    threshold_rule: str
    otsu_weight: Share
    least_areas: list[Pair]
    held_out: _HeldOut | None
    peaks: Interval
    annotated: float
    n_banks: Count
    penalty: float | None


class Parameters(_Whole):
    """Parameters of a segmenter that a model file holds."""

    alphas: list[float] | None
    selection_pixels: Count
    training_pixels: Count
    threshold: Literal["quantile+otsu", "quantile", "iou", "zero"]
    smallest_region: Share
    probability: Literal["calibrated", "raw"]
    unlabelled: Value | None
    random_state: Count | None


class _Splitter(_Whole):
    landscape: str
    smoothing: Annotated[float, Field(ge=0, le=100)]
    depth: NonNegativeFloat
    radius: Annotated[float, Field(gt=0, le=1e5)]
    least_area: NonNegativeFloat
    cut_share: NonNegativeFloat
    fills_holes: bool
    least_probability: Share = 0.0


_Number = Annotated[int, Field(ge=0, lt=2**31)]


class _SplitScores(_Whole):
    regions: Literal["images", "blocks"]
    n_regions: Count
    n_objects: Count
    ap_50: float
    mean_ap: float
    usual: float
    by_landscape: dict[str, float]
    n_found: Count = 0
    counts: list[Annotated[list[_Number], Field(min_length=2, max_length=2)]] = []
    all_counted: bool = False
    groups: list[_Number] = []

    @model_validator(mode="after")
    def _has_a_group_for_each(self) -> Self:
        if self.groups and len(self.groups) != len(self.counts):
            raise PydanticCustomError("groups", "groups must have a number for each of counts")
        return self


class _Parts(_Part):
    kernels: dict[str, Any]
    channels: Annotated[list[str], Field(min_length=1)]


class _Objects(_Part):
    splitter: _Splitter
    source: Literal["instances", "regions", "strokes", "nothing"]
    scores: _SplitScores | None
    parts: _Parts | None


class _Alarms(_Whole):
    n_only: list[Count]
    n_images: Count
    expected: bool
    known: bool
    dtypes: list[str]
    pixel_sizes: list[Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)]]


class _Reading(_Whole):
    axes: str | None
    range: str | None
    context: NonNegativeInt
    unnamed: str | None
    is_learnt: bool
    channels: list[str]
    selected: list[str]


class _Bank(_Part):
    kind: str
    banks: Annotated[list[dict[str, Any]], Field(max_length=MOST_BANKS)] = []


class _Versions(_Part):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    segkit: str


class _Origin(_Part):
    model: str
    source: str | None
    licence: str | None


class _Header(_Part):
    bank: _Bank
    weights_sha256: str | None
    weights_origin: list[_Origin]
    channels: Annotated[list[Annotated[list[str], Field(min_length=2, max_length=2)]], Field(min_length=1)]
    n_image_channels: Annotated[PositiveInt, Field(le=MOST_IMAGE_CHANNELS)]
    label_map: _Labels
    threshold: float
    otsu_weight: Share
    temperature: PositiveFloat
    least_areas: list[Pair]
    kernels: dict[str, Any]
    objects: _Objects
    alarms: _Alarms
    reading: _Reading
    parameters: Parameters
    summary: _Summary
    settings: dict[str, Any] | None
    versions: _Versions

    @model_validator(mode="after")
    def _fits_classes(self) -> Self:
        n_classes, held_out = len(self.label_map.values), self.summary.held_out
        per_class: list[list[Any]] = [
            self.label_map.names,
            self.least_areas,
            self.summary.training_iou,
            self.alarms.n_only,
        ]
        for region in [] if held_out is None else held_out.scores:
            per_class += [region.iou, region.dice]
        if any(len(entries) != n_classes for entries in per_class):
            raise PydanticCustomError("classes", "entries of a class are missing, or there are too many")
        return self


def check_header(header: dict[str, Any], path: str) -> None:
    """Check type and range of each entry of a header of the present format."""
    try:
        _Header.model_validate(header)
    except ValidationError as error:
        fault = error.errors()[0]
        name, reason = ".".join(map(str, fault["loc"])), fault["msg"]
        where = f"header entry {name}" if name else "header"
        raise ModelFileError(
            f"{where}: {reason[0].lower()}{reason[1:]}; copy it anew or train again", source=path
        ) from error
