"""The model file: one safetensors file whose header carries JSON, and a fitted segmenter as that header and arrays.

Opening a model never executes anything: arrays come from safetensors, the rest is JSON. The format
has a version of its own; a file of a version it does not know is refused, never guessed at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from segkit import __version__
from segkit._files import saving
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.classifier.platt import PlattScaling
from segkit.errors import InputError, ModelFileError
from segkit.features import Channel, FilterBank, bank_to_dict
from segkit.features.registry import plain
from segkit.images import LabelMap
from segkit.segmentation.alarms import Alarms
from segkit.segmentation.base import mask_values
from segkit.segmentation.objects import N_PARTS, ObjectModel
from segkit.segmentation.summary import TrainingSummary
from segkit.segmentation.threshold import RENAMED_THRESHOLDS

FORMAT_VERSION = 8
READABLE = (1, 2, 3, 4, 5, 6, 7, 8)
SUFFIX = ".segkit"
_KEY = "segkit"
_PARAMETERS = (
    "lambdas",
    "normalization",
    "selection_pixels",
    "training_pixels",
    "threshold",
    "smallest_region",
    "probability",
    "unlabelled",
    "random_state",
)
Arrays = dict[str, NDArray[Any]]


def write_model(path: str | Path, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a model file in one step: the old file stays until the new one is whole.

    Parameters
    ----------
    path : str or Path
        File to write; missing folders are made.
    header : dict
        JSON-able facts; the format version is added.
    arrays : dict of str to ndarray
        Arrays by name.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    from safetensors.numpy import save

    path = Path(path)
    text = json.dumps({"format_version": FORMAT_VERSION, **header}, allow_nan=False)
    data = save({name: np.asarray(array, order="C") for name, array in arrays.items()}, metadata={_KEY: text})
    with saving(path) as temporary:
        temporary.write_bytes(data)


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a model file.

    Returns
    -------
    header : dict
        What `write_model` was given, and ``format_version``.
    arrays : dict of str to ndarray
        Arrays by name.

    Raises
    ------
    ModelFileError
        If the file is absent, damaged, not a segkit model, or of another format version.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file; train one with segkit train")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise ModelFileError(f"{path}: not a segkit model; give a file written by segkit train")
            header: dict[str, Any] = json.loads(metadata[_KEY])
            if not isinstance(header, dict):
                raise ModelFileError(f"{path}: damaged header; copy it anew or train again")
            format_version = header.get("format_version")
            if format_version not in READABLE:
                raise ModelFileError(
                    f"{path}: model of format version {format_version}, this segkit reads "
                    f"{', '.join(map(str, READABLE))}; "
                    f"train it anew, or use the segkit that wrote it ({header.get('versions', {}).get('segkit', 'unknown')})"
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise ModelFileError(
            f"{path}: damaged or not a segkit model ({error}); copy it anew or train again"
        ) from error
    return header, arrays


def digest_arrays(arrays: dict[str, NDArray[Any]]) -> str:
    """Hexadecimal sha256 of named arrays: names, shapes, types and values, in order of name."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def package_versions() -> dict[str, str]:
    """Versions of segkit and of the packages its numbers depend on."""
    packages = ("numpy", "scipy", "scikit-learn", "torch", "torchvision", "kymatio")
    return {"segkit": __version__} | {name: version(name) for name in packages}


def upgrade(header: dict[str, Any], path: str) -> None:
    """Give the header of an earlier format the entries of the present one.

    Parameters
    ----------
    header : dict
        Header of a model file; it is changed.
    path : str
        Where it comes from, for messages.

    Raises
    ------
    ModelFileError
        If its bank no longer exists.
    """
    for last_version, function in _UPGRADES:
        if header["format_version"] <= last_version:
            function(header, path)


def describe(segmenter: Any, *, embed_weights: bool) -> tuple[dict[str, Any], Arrays]:
    """Describe a fitted segmenter.

    Parameters
    ----------
    segmenter : Segmenter
        Fitted.
    embed_weights : bool
        Whether the network weights it needs are among the arrays; what a bank learnt always is.

    Returns
    -------
    header : dict
        JSON-able: bank, kept channels, label map, threshold, kernels, parameters, summary, versions.
    arrays : dict of ndarray
        The arrays by name.
    """
    classifier, bank = segmenter.classifier_, segmenter.bank_
    weights = bank.weights_used(_channels_of_both(segmenter), segmenter.n_image_channels_)
    kernels, arrays = classifier.to_state()
    objects, of_objects = None, {}
    if segmenter.objects_ is not None:
        objects, of_objects = segmenter.objects_.to_state(bank.channels(segmenter.n_image_channels_))
    alarms, of_alarms = (None, {}) if segmenter.alarms_ is None else segmenter.alarms_.to_state()
    header = {
        "bank": bank_to_dict(bank),
        "weights_sha256": digest_arrays(weights) if weights else None,
        "channels": [list(channel) for channel in segmenter.channels_],
        "n_image_channels": segmenter.n_image_channels_,
        "normalization": segmenter.normalization_,
        "label_map": segmenter.label_map_.to_dict(),
        "threshold": segmenter.threshold_,
        "otsu_weight": segmenter.otsu_weight_,
        "least_areas": segmenter.least_areas_.tolist(),
        "kernels": kernels,
        "objects": objects,
        "alarms": alarms,
        "parameters": {name: plain(getattr(segmenter, name)) for name in _PARAMETERS},
        "summary": segmenter.summary_.to_dict(),
        "versions": package_versions(),
    }
    arrays |= (
        of_objects
        | of_alarms
        | {
            "platt.slope": segmenter.platt_.slope_,
            "platt.intercept": segmenter.platt_.intercept_,
        }
    )
    if embed_weights or bank.learns_weights:
        arrays |= {f"weights.{name}": array for name, array in weights.items()}
    return header, arrays


def restore(segmenter: Any, header: dict[str, Any], arrays: Arrays, path: str) -> None:
    """Give a segmenter the fitted state that `describe` described.

    Parameters
    ----------
    segmenter : Segmenter
        Made of the stored bank and parameters, not fitted.
    header : dict
        Header of the present format.
    arrays : dict of ndarray
        The arrays by name.
    path : str
        Where they come from, for messages.

    Raises
    ------
    ModelFileError
        If the arrays do not fit each other, or the bank's weights are not those of the training.
    """
    segmenter.n_image_channels_ = header["n_image_channels"]
    segmenter.bank_ = _restore_bank(segmenter.bank, arrays, path)
    segmenter.normalization_ = header["normalization"]
    segmenter.channels_ = tuple(Channel(name, group) for name, group in header["channels"])
    known = segmenter.bank_.channels(segmenter.n_image_channels_)
    kept = _positions(segmenter.channels_, known)
    segmenter.label_map_ = LabelMap.from_dict(header["label_map"])
    segmenter.classes_ = mask_values(segmenter.label_map_)
    segmenter.classifier_ = PixelClassifier.from_state(kept, header["kernels"], arrays)
    segmenter.platt_ = PlattScaling.from_arrays(arrays["platt.slope"], arrays["platt.intercept"])
    segmenter.threshold_, segmenter.otsu_weight_ = header["threshold"], header["otsu_weight"]
    segmenter.least_areas_ = np.array(header["least_areas"], dtype=np.float64)
    objects = header["objects"]
    segmenter.objects_ = None if objects is None else ObjectModel.from_state(objects, arrays, known)
    alarms, names = header.get("alarms"), segmenter.label_map_.names
    segmenter.alarms_ = None if alarms is None else Alarms.from_state(alarms, arrays, names)
    _check_weights(segmenter, header, path)
    segmenter.summary_ = TrainingSummary.from_dict(header["summary"])
    segmenter.lambda_, segmenter.held_out_ = segmenter.summary_.penalty, segmenter.summary_.held_out
    if faults := _misfits(segmenter, arrays):
        raise ModelFileError(
            f"{path}: these do not fit the rest: {', '.join(faults)}; copy it anew or train again"
        )


def _restore_bank(bank: FilterBank, arrays: Arrays, path: str) -> FilterBank:
    """Copy a bank and give it the weights that are among the arrays."""
    restored: FilterBank = clone(bank)
    weights = {
        name.removeprefix("weights."): array for name, array in arrays.items() if name.startswith("weights.")
    }
    if weights:
        try:
            restored.use_weights(weights)
        except InputError as error:
            raise ModelFileError(f"{path}: {error}") from error
    return restored


def _positions(channels: Sequence[Channel], known: Sequence[Channel]) -> NDArray[np.intp]:
    """Position of each channel among those of the bank, by name."""
    position = {channel.name: index for index, channel in enumerate(known)}
    return np.array([position[channel.name] for channel in channels])


def _channels_of_both(segmenter: Any) -> NDArray[np.intp]:
    """Give the channels that the classes or the rim of objects need, rising."""
    rim = None if segmenter.objects_ is None else segmenter.objects_.rim
    kept: NDArray[np.intp] = segmenter.classifier_.channels_
    return kept if rim is None else np.union1d(kept, rim.channels_)


def _check_weights(segmenter: Any, header: dict[str, Any], path: str) -> None:
    """Refuse other weights than those of the training."""
    used = segmenter.bank_.weights_used(_channels_of_both(segmenter), segmenter.n_image_channels_)
    if (digest_arrays(used) if used else None) == header["weights_sha256"]:
        return
    if segmenter.bank_.learns_weights:
        what, cure = "learnt weights", "copy it anew"
    else:
        what = "network weights"
        cure = f"give back {' and '.join(_weight_files(header['bank']))} as they were"
    raise ModelFileError(f"{path}: its {what} are not those it was trained with; {cure}, or train again")


def _misfits(segmenter: Any, arrays: Arrays) -> list[str]:
    """Name the parts of a restored segmenter that do not fit the others."""
    n_classes = segmenter.classes_.size
    n_outputs = 1 if n_classes == 2 else n_classes
    shapes = segmenter.classifier_.state_shapes(n_classes)
    shapes |= {"platt.slope": (n_outputs,), "platt.intercept": (n_outputs,)}
    least, threshold, otsu_weight = segmenter.least_areas_, segmenter.threshold_, segmenter.otsu_weight_
    if segmenter.objects_ is not None and (rim := segmenter.objects_.rim) is not None:
        shapes |= {f"rim.{name}": shape for name, shape in rim.state_shapes(N_PARTS).items()}
    if segmenter.alarms_ is not None:
        shapes |= segmenter.alarms_.state_shapes(len(segmenter.channels_), segmenter.n_image_channels_)
    fits = {name: arrays[name].shape == shape for name, shape in shapes.items()}
    fits |= {
        "least_areas": least.shape == (n_classes, 2) and bool((least >= 0).all()),
        "channels": bool((np.diff(segmenter.classifier_.channels_) > 0).all()),
        "threshold": isinstance(threshold, float) and isfinite(threshold),
        "otsu_weight": isinstance(otsu_weight, float) and 0 <= otsu_weight <= 1,
        "normalization": segmenter.normalization_ in ("image", "set"),
    }
    return [name for name, is_fit in fits.items() if not is_fit]


def _weight_files(bank: dict[str, Any]) -> list[str]:
    """Name the files that the network weights of a stored bank come from."""
    if "banks" in bank:
        return [file for part in bank["banks"] for file in _weight_files(part)]
    return [f"the file {bank['weights']}"] if "weights" in bank else []


def _upgrade_1(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 2 added the choice of the penalty, normalisation by image, and linear kernels."""
    header["parameters"] = {"lambdas": None, "normalization": "set"} | header["parameters"]
    header["kernels"] = {"kind": "mixture"} | header["kernels"]


def _upgrade_3(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 4 added the least areas of regions."""
    header["parameters"]["smallest_region"] = 0.0
    n_classes = LabelMap.from_dict(header["label_map"]).n_classes
    header["least_areas"] = [[0.0, 0.0]] * n_classes


def _upgrade_4(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 5 added the part of each image in its threshold."""
    header["otsu_weight"] = 0.0


def _upgrade_5(header: dict[str, Any], path: str) -> None:
    """Format 6 averages over turns otherwise."""
    if _is_averaged(header["bank"]):
        raise ModelFileError(
            f"{path}: its features are averaged over turns as up to format version 5, no longer known; "
            f"train it anew, or use the segkit that wrote it ({header['versions']['segkit']})"
        )


def _upgrade_6(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 7 renamed rules of the threshold, and keeps the normalisation of the training by itself."""
    for section, key in (("parameters", "threshold"), ("summary", "threshold_rule")):
        if key in header[section]:
            header[section][key] = RENAMED_THRESHOLDS.get(header[section][key], header[section][key])
    header["normalization"] = header["parameters"]["normalization"]


def _upgrade_7(header: dict[str, Any], path: str) -> None:  # noqa: ARG001
    """Format 8 added objects."""
    header["objects"] = None


def _is_averaged(bank: dict[str, Any]) -> bool:
    """Tell whether a stored bank, or one of its banks, is averaged over turns."""
    return "orbit" in bank or any(map(_is_averaged, bank.get("banks", ())))


# Each takes the header of a file up to that format version one step on.
_UPGRADES = (
    (1, _upgrade_1),
    (3, _upgrade_3),
    (4, _upgrade_4),
    (5, _upgrade_5),
    (6, _upgrade_6),
    (7, _upgrade_7),
)
