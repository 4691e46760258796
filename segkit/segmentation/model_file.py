"""The model file: one safetensors file whose header carries JSON, and a fitted segmenter as that header and arrays.

Opening a model never executes anything: arrays come from safetensors, the rest is JSON. The format
has a version of its own; a file of a version it does not know is refused, never guessed at.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from segkit import __version__
from segkit.classifier.platt import PlattScaling
from segkit.classifier.svm import LinearSVM
from segkit.errors import InputError, ModelFileError, OutputError
from segkit.features import Channel, bank_to_dict
from segkit.features.registry import plain
from segkit.images import LabelMap
from segkit.images.write import atomic
from segkit.kernels import KernelMixture, LinearGaussianMixture, LinearMixture, MixtureRFF
from segkit.segmentation.base import mask_values
from segkit.segmentation.threshold import RENAMED_THRESHOLDS

FORMAT_VERSION = 6
READABLE = (1, 2, 3, 4, 5, 6)
SUFFIX = ".segkit"
_KEY = "segkit"
Arrays = dict[str, NDArray[Any]]
KERNELS: dict[str, type[KernelMixture]] = {
    "linear": LinearMixture,
    "linear+gaussian": LinearGaussianMixture,
    "mixture": MixtureRFF,
}
# Parameters that a format was the last not to know, and what they were then.
LATER: dict[int, dict[str, Any]] = {1: {"lambdas": None, "normalization": "set"}, 3: {"smallest_region": 0.0}}

PARAMETERS = (
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
    try:
        with atomic(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}): choose a writable folder"
        ) from error


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


def to_stored(segmenter: Any, *, embed_weights: bool) -> tuple[dict[str, Any], Arrays]:
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
        What can be JSON: the bank, the kept channels, label map, threshold, kernels, parameters, summary.
    arrays : dict of ndarray
        The arrays by name.
    """
    weights = segmenter.bank_.weights_used(segmenter._kept, segmenter.n_image_channels_)
    kernels, arrays = segmenter.kernels_.to_state()
    header = {
        "bank": bank_to_dict(segmenter.bank_),
        "weights_sha256": digest_arrays(weights) if weights else None,
        "channels": [list(channel) for channel in segmenter.channels_],
        "n_image_channels": segmenter.n_image_channels_,
        "label_map": segmenter.label_map_.to_dict(),
        "threshold": segmenter.threshold_,
        "otsu_weight": segmenter.otsu_weight_,
        "least_areas": segmenter.least_areas_.tolist(),
        "kernels": {
            "kind": next(kind for kind, cls in KERNELS.items() if type(segmenter.kernels_) is cls),
            **kernels,
        },
        "parameters": {name: plain(getattr(segmenter, name)) for name in PARAMETERS},
        "summary": segmenter.summary_,
        "versions": package_versions(),
    }
    stored = {f"kernels.{name}": array for name, array in arrays.items()}
    stored |= {"svm.coef": segmenter.svm_.coef_, "svm.intercept": segmenter.svm_.intercept_}
    stored |= {"scaler.mean": segmenter._mean, "scaler.scale": segmenter._scale}
    stored |= {"platt.slope": segmenter.platt_.slope_, "platt.intercept": segmenter.platt_.intercept_}
    if embed_weights or segmenter.bank_.learns_weights:
        stored |= {f"weights.{name}": array for name, array in weights.items()}
    return header, stored


def restore(segmenter: Any, header: dict[str, Any], arrays: Arrays, path: str) -> None:
    """Give a segmenter the fitted state that `to_stored` described.

    Parameters
    ----------
    segmenter : Segmenter
        Made of the stored bank and parameters, not fitted.
    header : dict
        What can be JSON.
    arrays : dict of ndarray
        The arrays by name.
    path : str
        Where they come from, for messages.

    Raises
    ------
    ModelFileError
        If the arrays do not fit each other, or the bank's weights are not those of the training.
    """
    if header["format_version"] < 6 and _is_averaged(header["bank"]):
        raise ModelFileError(
            f"{path}: its features are averaged over turns as up to format version 5, no longer known; "
            f"train it anew, or use the segkit that wrote it ({header['versions']['segkit']})"
        )

    def part(prefix: str) -> Arrays:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    segmenter.bank_ = clone(segmenter.bank)
    weights = part("weights.")
    if weights:
        try:
            segmenter.bank_.use_weights(weights)
        except InputError as error:
            raise ModelFileError(f"{path}: {error}") from error
    segmenter.n_image_channels_ = header["n_image_channels"]
    position = {
        channel.name: n for n, channel in enumerate(segmenter.bank_.channels(segmenter.n_image_channels_))
    }
    segmenter.channels_ = tuple(Channel(name, group) for name, group in header["channels"])
    segmenter._kept = np.array([position[channel.name] for channel in segmenter.channels_])
    used = segmenter.bank_.weights_used(segmenter._kept, segmenter.n_image_channels_)
    if (digest_arrays(used) if used else None) != header["weights_sha256"]:
        if segmenter.bank_.learns_weights:
            what, cure = "learnt weights", "copy it anew"
        else:
            what = "network weights"
            cure = f"give back {' and '.join(_weight_files(header['bank']))} as they were"
        raise ModelFileError(f"{path}: its {what} are not those it was trained with; {cure}, or train again")
    segmenter.label_map_ = LabelMap.from_dict(header["label_map"])
    segmenter.classes_ = mask_values(segmenter.label_map_)
    kernels = KERNELS[header["kernels"].get("kind", "mixture")]
    segmenter.kernels_ = kernels.from_state(header["kernels"], part("kernels."))
    segmenter._mean, segmenter._scale = arrays["scaler.mean"], arrays["scaler.scale"]
    segmenter.svm_ = LinearSVM.from_arrays(arrays["svm.coef"], arrays["svm.intercept"])
    segmenter.platt_ = PlattScaling.from_arrays(arrays["platt.slope"], arrays["platt.intercept"])
    segmenter.threshold_ = header["threshold"]
    segmenter.otsu_weight_ = 0.0 if header["format_version"] < 5 else header["otsu_weight"]
    n_classes = segmenter.classes_.size
    least = np.zeros((n_classes, 2)) if header["format_version"] < 4 else header["least_areas"]
    segmenter.least_areas_ = np.array(least, dtype=np.float64)
    segmenter.summary_ = header["summary"]
    segmenter.lambda_ = header["summary"].get("lambda")
    segmenter.held_out_ = header["summary"].get("held_out")
    n_kept = len(segmenter.channels_)
    n_features = segmenter.kernels_.transform(np.zeros((1, n_kept), dtype=np.float32)).shape[1]
    n_planes = 1 if n_classes == 2 else n_classes
    shapes = {
        "scaler.mean": (n_kept,),
        "scaler.scale": (n_kept,),
        "svm.coef": (n_planes, n_features),
        "svm.intercept": (n_planes,),
        "platt.slope": (n_planes,),
        "platt.intercept": (n_planes,),
    }
    wrong = [name for name, shape in shapes.items() if arrays[name].shape != shape]
    least = segmenter.least_areas_
    wrong += ["least_areas"] if least.shape != (n_classes, 2) or not (least >= 0).all() else []
    wrong += ["channels"] if not (np.diff(segmenter._kept) > 0).all() else []
    threshold, share = segmenter.threshold_, segmenter.otsu_weight_
    wrong += ["threshold"] if not isinstance(threshold, float) or not isfinite(threshold) else []
    wrong += ["otsu_weight"] if not isinstance(share, float) or not 0 <= share <= 1 else []
    if wrong:
        raise ModelFileError(
            f"{path}: these do not fit the rest: {', '.join(wrong)}; copy it anew or train again"
        )


def _is_averaged(bank: dict[str, Any]) -> bool:
    """Tell whether a stored bank, or one of its banks, is averaged over turns."""
    return "orbit" in bank or any(map(_is_averaged, bank.get("banks", ())))


def parameters_of(header: dict[str, Any]) -> dict[str, Any]:
    """Parameters of the segmenter; what its format did not know yet is as it was then."""
    parameters: dict[str, Any] = {}
    for last, unknown in LATER.items():
        if header["format_version"] <= last:
            parameters |= unknown
    parameters.update(header["parameters"])
    parameters["threshold"] = RENAMED_THRESHOLDS.get(parameters["threshold"], parameters["threshold"])
    return parameters


def _weight_files(bank: dict[str, Any]) -> list[str]:
    """Where the networks of a stored bank had their weights from."""
    if "banks" in bank:
        return [file for part in bank["banks"] for file in _weight_files(part)]
    return [f"the file {bank['weights']}"] if "weights" in bank else []
