"""The model file: arrays and a header of JSON in one file, and a fitted segmenter as that header and arrays.

Opening a model never executes anything: there are numbers and JSON, and nothing else. The format
has a version of its own; a file of a version it does not know is refused, never guessed at. The file holds a sha256
of its header and of each array, so that one flipped bit is found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from segkit import __version__
from segkit._common import entries_under
from segkit._common.arrays import digest_arrays
from segkit._common.files import saving
from segkit.classifier.pixel_classifier import PixelClassifier
from segkit.errors import InputError, ModelFileError, OutputError, SegkitError
from segkit.features import Channel, FilterBank, bank_to_dict
from segkit.features.base import LEAST_PARTS
from segkit.features.registry import check_size, plain
from segkit.features.weights import cached_file, missing_download
from segkit.images import LabelMap, Reading
from segkit.images.reading import joined
from segkit.segmentation.alarms import Alarms
from segkit.segmentation.base import mask_values
from segkit.segmentation.header import Parameters
from segkit.segmentation.object_model import ObjectModel
from segkit.segmentation.summary import TrainingSummary
from segkit.segmentation.tensor_file import (
    Arrays,
    DamagedFile,
    pack,
    read_arrays,
    read_json,
    read_texts,
)
from segkit.segmentation.threshold import DecisionRule

# Increase it when an entry is renamed, dropped, or means something else, and add to `UPGRADES` the function that changes a
# header of the version before into one of this, and to tests/segmentation/golden a file of this version.
FORMAT_VERSION = 1
UPGRADES: dict[int, Callable[[dict[str, Any]], None]] = {}
# Texts of the file: the header, and its sha256.
_KEY, _DIGEST = "segkit", "sha256"
# A threshold further from 0 than so many times the largest decision on noise cannot be one of training pixels.
_MOST_BEYOND = 30
# Height and width of an image that is predicted to try a model.
_MADE_UP = (64, 64)
# Entry of the header: sha256 of each array.
_TENSORS = "tensors"


def write_model(path: str | Path, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a model file in one step: the old file stays until the new one is whole."""
    path = Path(path)
    digests = {name: digest_arrays({name: array}) for name, array in sorted(arrays.items())}
    text = json.dumps({"format_version": FORMAT_VERSION, **header, _TENSORS: digests}, allow_nan=False)
    try:
        data = pack(arrays, {_KEY: text, _DIGEST: _digest(text)})
    except DamagedFile as error:
        raise OutputError(f"cannot be written ({error}): choose a smaller model", source=path) from error
    with saving(path) as temporary:
        temporary.write_bytes(data)


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a model file, and check it against its digests."""
    path = Path(path)
    if path.is_dir():
        raise ModelFileError(
            "a folder, expected a file written by segkit train; segkit predict takes the model first, then the images",
            source=path,
        )
    if not path.is_file():
        raise ModelFileError("no such model file; train one with segkit train", source=path)
    try:
        with path.open("rb") as file:
            return parse_model(file, str(path))
    except OSError as error:
        raise ModelFileError(
            f"cannot be read ({error.strerror}); check its permissions", source=path
        ) from error
    except MemoryError as error:
        raise ModelFileError(
            f"{path.stat().st_size / 1e9:.1f} GB do not fit into memory; train a smaller model", source=path
        ) from error


def parse_model(file: BinaryIO, path: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and arrays of a model from an open file; see `read_model`."""
    try:
        texts = read_texts(file)
        if _KEY not in texts:
            raise ModelFileError("not a segkit model; give a file written by segkit train", source=path)
        header = read_json(texts[_KEY])
        if not isinstance(header, dict):
            raise DamagedFile("header is no mapping")
        _check_version(header, path)
        if _DIGEST in texts and texts[_DIGEST] != _digest(texts[_KEY]):
            raise DamagedFile("header differs from its sha256")
        arrays = read_arrays(file)
        _check_digests(header.pop(_TENSORS, None), arrays, has_header=_DIGEST in texts)
    except DamagedFile as error:
        raise ModelFileError(
            f"damaged or not a segkit model ({error}); copy it anew or train again", source=path
        ) from error
    return header, arrays


def _check_version(header: dict[str, Any], path: str) -> None:
    """Refuse the header of a format version that is not known."""
    format_version, versions = header.get("format_version"), header.get("versions")
    if type(format_version) is int and 1 <= format_version <= FORMAT_VERSION:
        return
    written = versions.get("segkit") if isinstance(versions, dict) else None
    known = ", ".join(str(number) for number in range(1, FORMAT_VERSION + 1))
    raise ModelFileError(
        f"model of format version {format_version}, this segkit reads {known}; "
        f"train it anew, or use the segkit that wrote it ({written or 'unknown'})",
        source=path,
    )


def upgrade(header: dict[str, Any]) -> None:
    """Upgrade a header, version by version, to the present format."""
    for number in range(header["format_version"], FORMAT_VERSION):
        UPGRADES[number](header)


def _check_digests(digests: Any, arrays: Arrays, *, has_header: bool) -> None:
    """Compare arrays with their digests: none may differ, be missing, or be there without one."""
    if not has_header or not isinstance(digests, dict):
        raise DamagedFile("digests are missing")
    if unlike := sorted(digests.keys() ^ arrays.keys()):
        raise DamagedFile(f"array {unlike[0]} is {'missing' if unlike[0] in digests else 'not declared'}")
    for name, array in arrays.items():
        if digest_arrays({name: array}) != digests[name]:
            raise DamagedFile(f"array {name} differs from its sha256")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_model(segmenter: Any) -> str:
    """Hexadecimal sha256 of all that a model file holds, versions of packages among it, but for the network weights."""
    header, arrays = describe(segmenter, embed_weights=False)
    text = json.dumps(header | {"arrays": digest_arrays(arrays)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def package_versions() -> dict[str, str]:
    """Versions of segkit and of the packages its numbers depend on."""
    packages = ("numpy", "scipy", "scikit-learn", "torch", "torchvision", "kymatio")
    return {"segkit": __version__} | {name: version(name) for name in packages}


def describe(segmenter: Any, *, embed_weights: bool) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of a fitted segmenter."""
    classifier, bank = segmenter.classifier_, segmenter.bank_
    weights = bank.weights_used(_channels_of_both(segmenter), segmenter.n_image_channels_)
    kernels, arrays = classifier.to_state()
    objects, of_objects = segmenter.objects_.to_state(bank.channels(segmenter.n_image_channels_))
    alarms, of_alarms = segmenter.alarms_.to_state()
    header = {
        "bank": bank_to_dict(bank),
        "weights_sha256": digest_arrays(weights) if weights else None,
        "weights_origin": bank.weights_origin() if weights else [],
        "channels": [list(channel) for channel in segmenter.channels_],
        "n_image_channels": segmenter.n_image_channels_,
        "label_map": segmenter.label_map_.to_dict(),
        "threshold": segmenter.rule_.threshold,
        "otsu_weight": segmenter.rule_.otsu_weight,
        "temperature": segmenter.rule_.temperature,
        "least_areas": segmenter.rule_.least_areas.tolist(),
        "kernels": kernels,
        "objects": objects,
        "alarms": alarms,
        "reading": plain(segmenter.reading_),
        "parameters": {name: plain(getattr(segmenter, name)) for name in Parameters.model_fields},
        # Equal trainings give equal files, however long they took.
        "summary": {name: value for name, value in asdict(segmenter.summary_).items() if name != "seconds"},
        "settings": segmenter.settings_,
        "versions": package_versions(),
    }
    arrays |= of_objects | of_alarms
    if embed_weights or bank.learns_weights:
        arrays |= {f"weights.{name}": array for name, array in weights.items()}
    return header, arrays


def restore(segmenter: Any, header: dict[str, Any], arrays: Arrays, path: str) -> None:
    """Restore the fitted state of a segmenter from the header and arrays of `describe`, with all checks that need both."""
    _check_types(arrays, path)
    _check_sources(header["bank"], arrays, path)
    segmenter.n_image_channels_ = header["n_image_channels"]
    segmenter.bank_ = _restore_bank(segmenter.bank, arrays, path)
    check_size(segmenter.bank_, segmenter.n_image_channels_)
    known = segmenter.bank_.channels(segmenter.n_image_channels_)
    kept = _positions([name for name, _ in header["channels"]], known)
    segmenter.label_map_ = LabelMap.from_dict(header["label_map"])
    segmenter.classes_ = mask_values(segmenter.label_map_)
    segmenter.classifier_ = PixelClassifier.from_state(kept, header["kernels"], arrays)
    least_areas = np.array(header["least_areas"], dtype=np.float64)
    segmenter.rule_ = DecisionRule(
        header["threshold"], header["otsu_weight"], header["temperature"], least_areas
    )
    segmenter.objects_ = ObjectModel.from_state(header["objects"], arrays, known)
    segmenter.alarms_ = Alarms.from_state(header["alarms"], arrays, segmenter.label_map_.names)
    used = segmenter.bank_.weights_used(_channels_of_both(segmenter), segmenter.n_image_channels_)
    _check_weights(segmenter, used, header, path)
    segmenter.summary_ = TrainingSummary.from_dict(header["summary"])
    segmenter.settings_ = header["settings"]
    segmenter.reading_ = Reading.from_dict(header["reading"])
    if segmenter.n_image_channels_ % segmenter.reading_.n_planes:
        raise ModelFileError(
            f"{segmenter.n_image_channels_} channels of {segmenter.reading_.n_planes} planes; copy it anew or train "
            "again",
            source=path,
        )
    if segmenter.reading_.range is not None and segmenter.reading_.limits is None:
        raise ModelFileError(
            f"its range of values is {segmenter.reading_.range}, which was not learnt from images; train again",
            source=path,
        )
    if segmenter.objects_.splitter.needs_inside and segmenter.objects_.parts is None:
        raise ModelFileError(
            "its objects are told apart by their inside, which it has no classifier for; copy it anew or train again",
            source=path,
        )
    if faults := _misfits(segmenter, used, arrays):
        raise ModelFileError(
            f"these do not fit the rest: {', '.join(faults)}; copy it anew or train again", source=path
        )


def _restore_bank(bank: FilterBank, arrays: Arrays, path: str) -> FilterBank:
    """Copy a bank and give it the weights that are among the arrays."""
    restored: FilterBank = clone(bank)
    weights = entries_under(arrays, "weights.")
    if weights:
        try:
            restored.use_weights(weights)
        except InputError as error:
            raise ModelFileError(f"{error}", source=path) from error
    return restored


def _positions(names: Sequence[str], known: Sequence[Channel]) -> NDArray[np.intp]:
    """Position of each channel, by name, among those of the bank."""
    position = {channel.name: index for index, channel in enumerate(known)}
    if absent := [name for name in names if name not in position]:
        raise ModelFileError(f"channel {absent[0]} is none of its bank")
    return np.array([position[name] for name in names])


def _channels_of_both(segmenter: Any) -> NDArray[np.intp]:
    """Return the channels that the classes or the parts of objects need, rising."""
    parts = segmenter.objects_.parts
    kept: NDArray[np.intp] = segmenter.classifier_.channels_
    return kept if parts is None else np.union1d(kept, parts.channels_)


def _check_weights(segmenter: Any, used: Arrays, header: dict[str, Any], path: str) -> None:
    """Refuse other weights than those of the training."""
    if (digest_arrays(used) if used else None) == header["weights_sha256"]:
        return
    if segmenter.bank_.learns_weights:
        what, cure = "learnt weights", "copy it anew"
    else:
        what = "network weights"
        files = [
            "timm's pre-trained weights" if source == "pretrained" else f"the file {source}"
            for source in (part["weights"] for part in _parts_with_weights(header["bank"]))
        ]
        cure = f"give back {' and '.join(files)} as they were"
    raise ModelFileError(f"its {what} are not those it was trained with; {cure}, or train again", source=path)


def _check_types(arrays: Arrays, path: str) -> None:
    """Refuse positions of columns that are no whole numbers, and anything else that is not floating point."""
    for name, array in arrays.items():
        is_columns = "kernels." in name and name.endswith(".columns")
        kinds = "i" if is_columns else "fi" if name.startswith("weights.") else "f"
        if array.dtype.kind not in kinds:
            raise ModelFileError(
                f"array {name} is of dtype {array.dtype}; copy it anew or train again", source=path
            )


def _check_sources(bank: dict[str, Any], arrays: Arrays, path: str) -> None:
    """Refuse a model whose weights would be downloaded from an address that its author chose."""
    if any(name.startswith("weights.") for name in arrays):
        return
    for part in _parts_with_weights(bank):
        if (source := missing_download(part)) is not None:
            where = (
                f" at {source}" if source == part["weights"] else f" timm's of {source}, which are not here"
            )
            cure = (
                f"download them into {cached_file(source)}"
                if source == part["weights"]
                else "fetch them yourself"
            )
            raise ModelFileError(
                f"its network weights are{where}, and a model file starts no download; {cure}, or train again with "
                "training.embed_weights=true",
                source=path,
            )


def _misfits(segmenter: Any, used: Arrays, arrays: Arrays) -> list[str]:
    """Name the parts of a restored segmenter that do not fit the others, or belong to none."""
    n_classes = segmenter.classes_.size
    parts = {"": (segmenter.classifier_, n_classes)}
    if segmenter.objects_.parts is not None:
        parts["parts."] = (segmenter.objects_.parts, max(LEAST_PARTS, segmenter.objects_.n_parts))
    shapes = segmenter.alarms_.state_shapes(len(segmenter.channels_), segmenter.n_image_channels_)
    known, fits = set(shapes), {}
    if segmenter.alarms_.known is not None:
        fits["alarms.scales"] = bool((segmenter.alarms_.known.scales > 0).all())
    for prefix, (classifier, n_labels) in parts.items():
        shapes |= {f"{prefix}{name}": shape for name, shape in classifier.state_shapes(n_labels).items()}
        known |= {f"{prefix}{name}" for name in classifier.to_state()[1]}
        fits[f"{prefix}channels"] = bool((np.diff(classifier.channels_) > 0).all())
        fits[f"{prefix}scaler.scale"] = bool((classifier.scale_ > 0).all())
    known |= {f"weights.{name}" for name in used}
    fits |= {name: arrays[name].shape == shape and fits.get(name, True) for name, shape in shapes.items()}
    fits |= dict.fromkeys(arrays.keys() - known, False)
    return sorted(name for name, is_fit in fits.items() if not is_fit)


def _parts_with_weights(bank: dict[str, Any]) -> list[dict[str, Any]]:
    """List the banks of a stored bank that have network weights."""
    if "banks" in bank:
        return [found for part in bank["banks"] for found in _parts_with_weights(part)]
    return [bank] if "weights" in bank else []


def find_faults(segmenter: Any) -> list[str]:
    """Find what makes a model of sound parts useless: decisions that never change, or a prediction that fails."""
    classifier = segmenter.classifier_
    noise = np.random.default_rng(0).standard_normal((32, classifier.mean_.size))
    try:
        with np.errstate(all="ignore"):
            decisions = classifier.decision_function(classifier.mean_ + noise * classifier.scale_)
    except ValueError:  # numbers grew beyond float32 on the way
        decisions = np.array([np.inf])
    if not np.isfinite(decisions).all():
        return ["its decisions are not finite: train it anew"]
    if not np.ptp(decisions, axis=0).any():
        return ["its decisions are the same for every pixel, so it says one class everywhere: train it anew"]
    return [
        *_threshold_faults(segmenter.rule_, float(np.abs(decisions).max())),
        *_prediction_faults(segmenter),
    ]


def _threshold_faults(rule: DecisionRule, largest: float) -> list[str]:
    """Find a threshold that no decision can reach, where decisions on noise are up to `largest`."""
    if abs(rule.threshold) * (1 - rule.otsu_weight) <= _MOST_BEYOND * max(largest, 1.0):
        return []
    return [
        f"its threshold {rule.threshold:.3g} is beyond all decisions, so it says one class everywhere: train it anew"
    ]


def _prediction_faults(segmenter: Any) -> list[str]:
    """Predict a made-up image as the images of a folder are, and find what fails."""
    reading = segmenter.reading_
    n_channels = segmenter.n_image_channels_ // reading.n_planes
    low, high = reading.limits or (0, 1)
    page = np.random.default_rng(0).uniform(low, high, (*_MADE_UP, n_channels)).astype(np.float32)
    try:
        with np.errstate(all="ignore"):
            planes = [reading.scale(page, name="made-up image")] * reading.n_planes
            found = segmenter.segment(joined(planes, n_channels), objects=True)
    except (SegkitError, ValueError, ArithmeticError, IndexError, TypeError, RuntimeError) as error:
        return [f"it cannot segment an image ({error}): train it anew"]
    if not np.isfinite(found.probability).all():
        return ["its probabilities are not finite: train it anew"]
    return []
