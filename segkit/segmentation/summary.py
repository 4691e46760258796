"""The summary of a training: what was chosen, what was measured, and how both are stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True)
class HeldOutScores:
    """Scores on training images (or blocks of a single one), each held out of all that is learnt.

    Parameters
    ----------
    regions : {"images", "blocks", "copies"}
        What was held out.
    n_regions : int
        How many of them could be judged.
    mean_iou : float
        Mean over regions of the mean IoU over classes (eq. 8.1), at the threshold of the other regions.
    interval : list of float or None
        Its 95 % interval over regions, by Student's t; None of fewer than three regions.
    by_lambda : dict of str to float
        Mean IoU at each penalty.
    usual : float or None
        The penalty nearest to the usual one for this number of images.
    scores : list of dict
        For each region ``image`` (index of the training image, None for a block), ``mean_iou``, and ``iou`` and ``dice``
        of each class, None where a class is in neither truth nor prediction.
    object_iou, object_dice : float or None
        Mean over regions of the mean over all classes but the first, where defined.
    object_iou_interval, object_dice_interval : list of float or None
        Their 95 % intervals, as for `interval`.
    by_bank : list of dict or None
        Of several banks, ``bank``, ``mean_iou`` and ``chosen`` of each. The score of the chosen one is the highest of
        several, and so a little too high.
    """

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
        """Restore the scores that `dataclasses.asdict` gave; an earlier format may lack some."""
        return cls(**_known(cls, stored))


@dataclass(frozen=True)
class TrainingSummary:
    """What a training chose and measured.

    Parameters
    ----------
    n_images : int
        Number of training images.
    n_channels : int
        Number of channels of the bank.
    kept_channels : dict of str to int
        Number of kept channels of each group (layer, scale or order).
    kernels : list of dict
        Kind, name, gamma, weight and score of each kernel.
    training_iou : list of float
        Mean over images of the IoU of each class on the training pixels.
    training_mean_iou : float
        Mean over images of the mean IoU on the training pixels.
    training_set_sha256 : str
        Digest of the training images, masks and objects.
    n_training_pixels : int or None
        Number of pixels that kernels and classifier were trained on.
    criterion : str
        Score that the weights of the kernels follow.
    selector : str
        Class of the selector.
    penalty : float or None
        Lambda of eq. 7.17; None if the ``C`` of the SVM was given.
    threshold : float
        Decision above which a pixel is of the second of two classes.
    threshold_rule : str
        How the threshold was found, see `Segmenter`.
    otsu_weight : float
        Weight of Otsu's threshold of each image, 0 to 1.
    least_areas : list of list of float
        Least area in pixels of a region of each class, whole and cut by the border of an image.
    held_out : HeldOutScores or None
        None if nothing could be held out.
    peaks : list of float or None
        Least and greatest over images of the brightest value, in [0, 1].
    annotated : float
        Fraction of the pixels that are annotated.
    n_banks : int
        Number of banks to choose from.
    n_parts : int
        Number of classifiers whose decisions are averaged: one for each network in late fusion.
    seconds : dict of str to float
        Duration of each step; empty in a model that was read from a file.
    """

    n_images: int
    n_channels: int
    kept_channels: dict[str, int]
    kernels: list[dict[str, Any]]
    training_iou: list[float]
    training_mean_iou: float
    training_set_sha256: str
    n_training_pixels: int | None = None
    criterion: str = "mmd"
    selector: str = "ConditionalCovarianceSelector"
    penalty: float | None = None
    threshold: float = 0.0
    threshold_rule: str = "zero"
    otsu_weight: float = 0.0
    least_areas: list[list[float]] = field(default_factory=list)
    held_out: HeldOutScores | None = None
    peaks: Sequence[float] | None = None
    annotated: float = 1.0
    n_banks: int = 1
    n_parts: int = 1
    seconds: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give all fields as values that JSON can hold; the penalty is called ``lambda`` there."""
        stored = asdict(self)
        stored["lambda"] = stored.pop("penalty")
        return stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore the summary that `to_dict` gave; an earlier format may lack some fields."""
        known = _known(cls, stored) | {"penalty": stored.get("lambda")}
        if known.get("held_out") is not None:
            known["held_out"] = HeldOutScores.from_dict(known["held_out"])
        return cls(**known)


def _known(cls: Any, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out entries that are no field of a dataclass."""
    return {one.name: stored[one.name] for one in fields(cls) if one.name in stored}
