"""The summary of a training: what was chosen, what was measured, and how both are stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True)
class HeldOutScores:
    """Scores on training images (or blocks of a single one), each held out of all that is learnt."""

    regions: str
    n_regions: int
    mean_iou: float
    interval: list[float] | None = None
    by_lambda: dict[str, float] = field(default_factory=dict)
    usual: float | None = None
    scores: list[dict[str, Any]] = field(default_factory=list)
    object_iou: float | None = None
    object_dice: float | None = None
    object_iou_interval: list[float] | None = None
    object_dice_interval: list[float] | None = None
    by_bank: list[dict[str, Any]] | None = None

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore the scores that `dataclasses.asdict` gave."""
        return cls(**_known(cls, stored))


@dataclass(frozen=True)
class TrainingSummary:
    """What a training chose and measured."""

    n_images: int
    n_channels: int
    kept_channels: dict[str, int]
    kernels: list[dict[str, Any]]
    training_iou: list[float]
    training_mean_iou: float
    training_set_sha256: str
    n_training_pixels: int
    criterion: str
    selector: str
    penalty: float | None
    threshold: float
    threshold_rule: str
    otsu_weight: float
    least_areas: list[list[float]]
    held_out: HeldOutScores | None
    peaks: Sequence[float]
    annotated: float
    n_banks: int
    seconds: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as values that JSON can hold; the penalty is called ``lambda`` there."""
        stored = asdict(self)
        stored["lambda"] = stored.pop("penalty")
        return stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore the summary that `to_dict` gave."""
        known = _known(cls, stored) | {"penalty": stored["lambda"]}
        if known["held_out"] is not None:
            known["held_out"] = HeldOutScores.from_dict(known["held_out"])
        return cls(**known)


def _known(cls: Any, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out entries that are no field of a dataclass."""
    return {one.name: stored[one.name] for one in fields(cls) if one.name in stored}
