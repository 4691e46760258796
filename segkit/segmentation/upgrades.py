"""Upgrade headers of model files, format by format, to the present one."""

from __future__ import annotations

from typing import Any

from segkit.errors import ModelFileError
from segkit.features.convnet import ACTIVATIONS
from segkit.images import LabelMap
from segkit.segmentation.threshold import RENAMED_THRESHOLDS


def upgrade(header: dict[str, Any], path: str) -> None:
    """Upgrade a header of an earlier format to the present one."""
    for last_version, function in _UPGRADES:
        if header["format_version"] <= last_version:
            function(header, path)


def _upgrade_1(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 2 added the choice of the penalty, normalisation by image, and linear kernels."""
    header["parameters"] = {"lambdas": None, "normalization": "set"} | header["parameters"]
    header["kernels"] = {"kind": "mixture"} | header["kernels"]


def _upgrade_2(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 3 stores the kind of each kernel; before, it was the first word of its name."""
    for kernel in header["summary"].get("kernels", ()):
        kernel.setdefault("kind", kernel["name"].partition(" ")[0].lower())


def _upgrade_3(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 4 added the least areas of regions."""
    header["parameters"]["smallest_region"] = 0.0
    n_classes = LabelMap.from_dict(header["label_map"]).n_classes
    header["least_areas"] = [[0.0, 0.0]] * n_classes


def _upgrade_4(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 5 added the weight of Otsu's threshold of each image."""
    header["otsu_weight"] = 0.0


def _upgrade_5(header: dict[str, Any], path: str) -> None:
    """Format 6 computes averages over rotations in another way."""
    if _is_averaged(header["bank"]):
        raise ModelFileError(
            f"{path}: its features are averaged over turns as up to format version 5, no longer known; "
            f"train it anew, or use the segkit that wrote it ({header['versions']['segkit']})"
        )


def _upgrade_6(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 7 renamed the threshold rules, and stores the normalisation as an entry of its own."""
    for section, key in (("parameters", "threshold"), ("summary", "threshold_rule")):
        if key in header[section]:
            header[section][key] = RENAMED_THRESHOLDS.get(header[section][key], header[section][key])
    header["normalization"] = header["parameters"]["normalization"]


def _upgrade_7(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 8 added objects."""
    header["objects"] = None


def _upgrade_8(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 9 records the settings of the training, and no longer its duration; networks have other default layers."""
    header["settings"] = None
    header["summary"].pop("seconds", None)
    _name_layers(header["bank"])


def _name_layers(bank: dict[str, Any]) -> None:
    """Name the layers of networks without named ones: they were the outputs of all non-linearities."""
    for part in bank.get("banks", (bank,)):
        if part["kind"] == "convnet" and part.get("layers") is None:
            part["layers"] = [ACTIVATIONS]


def _is_averaged(bank: dict[str, Any]) -> bool:
    """Return whether a stored bank, or one of its banks, is averaged over turns."""
    return "orbit" in bank or any(map(_is_averaged, bank.get("banks", ())))


# Each upgrades headers up to that format version.
_UPGRADES = (
    (1, _upgrade_1),
    (2, _upgrade_2),
    (3, _upgrade_3),
    (4, _upgrade_4),
    (5, _upgrade_5),
    (6, _upgrade_6),
    (7, _upgrade_7),
    (8, _upgrade_8),
)
