"""The methods of a benchmark: names, options, and construction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError as SchemaError
from pydantic import create_model

from segkit.config.banks import BankConfig, fields_of
from segkit.config.faults import Section, explain_value, locate
from segkit.config.read import read_options, shipped
from segkit.config.schema import Config, DataConfig
from segkit.errors import ConfigError
from segkit.segmentation.base import BaseSegmenter

# Baselines by kind; kind "segkit" is not among them: its schema is the training configuration, `Config`.
_KINDS = {"forest": "PixelForest", "fcn": "FCN", "unet": "UNet"}
# Parameters of baselines that are no options: they are of the run, or for Python.
_NO_OPTIONS = {"bank", "threshold_pixels", "checkpoint", "unlabelled", "n_jobs", "random_state"}


class _BaselineOptions(Section):
    """Options of a baseline: parameters of its constructor."""

    constructor: ClassVar[Any]

    def build(self, seed: int, checkpoint: str | None = None) -> Any:
        """Make the baseline from a seed; networks write a checkpoint."""
        options: dict[str, Any] = dict(self)
        if "bank" in options:
            bank = options["bank"]
            options |= {"bank": None if bank is None else bank.build(seed), "n_jobs": -1}
        else:
            options["checkpoint"] = checkpoint
        return self.constructor(**options, random_state=seed)


@cache
def _schema_of(kind: str) -> type[_BaselineOptions]:
    """Make the schema of a baseline from its constructor."""
    constructor = getattr(import_module("segkit.baselines"), _KINDS[kind])
    fields = fields_of(signature(constructor, eval_str=True).parameters, without=_NO_OPTIONS)
    if kind == "forest":  # its default bank is `MultiscaleBank`
        fields["bank"] = (BankConfig | None, None)
    schema = create_model(f"{kind}_options", __base__=_BaselineOptions, **fields)
    schema.constructor = constructor
    return schema


# What segkit gives its own classifier.
_CENTRED = {"normalization": "image", "threshold": "quantile+otsu"}


def _convpaint(*layers: str) -> dict[str, Any]:
    """Return the pixel classifier of convpaint on some layers; `PixelForest` says where its settings come from."""
    return {
        "kind": "forest",
        "bank": {"name": "vgg16", "layers": list(layers), "pyramid": [1.0, 0.5, 0.25]},
        "classifier": "catboost",
        "n_estimators": 50,
        "max_depth": 5,
        "interpolation": "nearest",
    }


# The layers of convpaint's settings "vgg", its default, and "vgg-m".
_VGG, _VGG_M = ("conv1_1",), ("conv1_1", "conv1_2", "conv2_1")

DEFAULT_METHODS: dict[str, dict[str, Any]] = {
    "segkit-vgg": {"kind": "segkit", "title": "segkit (VGG16)", "bank": {"name": "vgg16"}},
    "segkit-networks": {
        "kind": "segkit",
        "title": "segkit (VGG19 and SqueezeNet)",
        **read_options(shipped("two-networks")),
    },
    "segkit-tuned": {"title": "segkit (tuned network)", **read_options(shipped("tuned"))},
    "segkit-tuned-long": {
        "title": "segkit (tuned network, more steps)",
        **read_options(shipped("tuned-long")),
    },
    "segkit-dinov2": {
        "kind": "segkit",
        "title": "segkit (DINOv2-S, multiscale)",
        "bank": {
            "name": "stacked",
            "banks": [{"name": "timm", "network": "vit_small_patch14_dinov2"}, {"name": "multiscale"}],
        },
    },
    "segkit-no-networks": {"kind": "segkit", "title": "segkit, no networks"},
    "segkit-paper": {
        "kind": "segkit",
        "title": "recipe of the paper (VGG16)",
        **read_options(shipped("paper-004")),
    },
    "segkit-paper-scattering": {
        "title": "recipe of the paper (scattering)",
        **read_options(shipped("paper-004-scattering")),
    },
    "segkit-paper-as-printed": {
        "title": "recipe of the paper as printed (VGG16)",
        **read_options(shipped("paper-004-as-printed")),
    },
    "segkit-orbit": {"kind": "segkit", "title": "segkit (orbit bank)", "bank": {"name": "orbit"}},
    "fcn": {"kind": "fcn", "title": "FCN-8s (pre-trained)", "weights": "imagenet"},
    "fcn-scratch": {"kind": "fcn", "title": "FCN-8s (from scratch)"},
    "unet": {"kind": "unet", "title": "U-Net"},
    "smp": {
        "kind": "unet",
        "title": "U-Net on MobileNetV2 (pre-trained)",
        "encoder": "mobilenet_v2",
        "weights": "imagenet",
    },
    "forest": {"kind": "forest", "title": "pixel forest"},
    "forest-vgg": {"kind": "forest", "title": "pixel forest (VGG16)", "bank": {"name": "vgg16"}},
    "forest-centred": {
        "kind": "forest",
        "title": "pixel forest, centred, adaptive threshold",
        **_CENTRED,
    },
    "convpaint": {"title": "convpaint (first layer of VGG16)", **_convpaint(*_VGG)},
    "convpaint-m": {"title": "convpaint (three layers of VGG16)", **_convpaint(*_VGG_M)},
    "convpaint-centred": {
        "title": "convpaint (three layers of VGG16), centred, adaptive threshold",
        **_convpaint(*_VGG_M),
        **_CENTRED,
    },
    "forest-convpaint": {
        "kind": "forest",
        "title": "pixel forest on convpaint's filters (VGG16)",
        "bank": {"name": "vgg16", "layers": list(_VGG_M), "pyramid": [1.0, 0.5, 0.25]},
    },
    "forest-scattering": {
        "kind": "forest",
        "title": "pixel forest (scattering)",
        "bank": {"name": "scattering"},
    },
}


# Options of a training configuration that all methods of a benchmark share, and the place to give them.
_OF_THE_BENCHMARK = {
    "data": "beside the methods, for example --set data.unlabelled=VALUE",
    "seed": "by --seeds",
}


@dataclass(frozen=True)
class Method:
    """A segmentation method in a benchmark."""

    name: str
    title: str
    kind: str
    options: Any

    def build(self, seed: int, checkpoint: str | None = None, *, context: int = 0) -> BaseSegmenter:
        """Make the estimator with a seed; networks write a checkpoint, and continue from it."""
        if isinstance(self.options, Config):
            data = self.options.data.model_copy(update={"context": context})
            return self.options.model_copy(update={"seed": seed, "data": data}).build()
        segmenter: BaseSegmenter = self.options.build(seed, checkpoint)
        return segmenter

    def to_dict(self) -> dict[str, Any]:
        """Describe title, kind and all options in values that JSON can hold, for `from_dict`."""
        config = self.options.model_dump(mode="json", exclude={*_OF_THE_BENCHMARK, "objects"})
        return {"title": self.title, "kind": self.kind, "config": config}

    @classmethod
    def from_dict(cls, name: str, entries: Mapping[str, Any]) -> Self:
        """Make the method from its description by `to_dict`."""
        return cls(name, entries["title"], entries["kind"], _check(name, entries["kind"], entries["config"]))


def load_methods(
    names: Iterable[str], path: Path | None = None, overrides: Iterable[str] = ()
) -> list[Method]:
    """Choose methods and their options.

    Parameters
    ----------
    names : iterable of str
        Methods to run, from `DEFAULT_METHODS` or from the file.
    path : Path, optional
        YAML file of methods: ``NAME: {kind: segkit|forest|fcn|unet, title: ..., ...options}``. Its methods are added
        to the default ones; a method with the same name replaces the default. Its section ``data`` is for `load_data`.
    overrides : iterable of str
        Options ``NAME.key=value`` of the chosen methods, for example ``fcn.weights=FILE``; options of ``data`` are
        for `load_data`.

    Returns
    -------
    list of Method
        In the order of `names`.

    Raises
    ------
    ConfigError
        If a method or a key does not exist, or a value does not fit.
    """
    # Without repetitions: a method named twice runs once.
    names, overrides = list(dict.fromkeys(names)), list(overrides)
    known = read_options(path, overrides, base=DEFAULT_METHODS)
    known.pop("data", None)
    for name in known:
        if not isinstance(name, str):
            raise ConfigError(
                f"configuration {path}: the name of method {name} is not text: put it in quotes"
            )
    _refuse_unused(overrides, names, read_options(path, base=DEFAULT_METHODS))
    methods = []
    for name in names:
        if name not in known:
            raise ConfigError(
                f"method {name}: choose among {', '.join(known)}, or describe it in a --config file"
            )
        if not re.fullmatch(r"[A-Za-z0-9_-][\w.-]*", name):
            raise ConfigError(
                f"method {name!r}: use letters, digits, dashes, underscores and (not first) dots: it names files"
            )
        if not isinstance(known[name], dict):
            raise ConfigError(f"method {name} is {known[name]!r}: give a mapping of kind, title and options")
        options = dict(known[name])
        kind, title = options.pop("kind", "segkit"), str(options.pop("title", name))
        methods.append(Method(name, title, kind, _check(name, kind, options)))
    if not methods:
        raise ConfigError(f"no method chosen: name one or more of {', '.join(known)}")
    return methods


def load_data(path: Path | None = None, overrides: Iterable[str] = ()) -> DataConfig:
    """Read the meaning of mask values: the section ``data`` of the file and of the overrides of `load_methods`.

    Parameters
    ----------
    path : Path, optional
        YAML file of methods.
    overrides : iterable of str
        Options ``key=value``, for example ``data.unlabelled=255``.

    Returns
    -------
    DataConfig
        Names of the classes, the value of unlabelled pixels, and whether masks number objects.

    Raises
    ------
    ConfigError
        If a key does not exist or is not for benchmarks, or a value does not fit.
    """
    data = Config.from_options({"data": read_options(path, overrides).get("data", {})}).data
    data.refuse_others("labels", "unlabelled", "masks", "axes", "range", "context")
    return data


def _refuse_unused(overrides: Sequence[str], names: Sequence[str], described: Mapping[str, Any]) -> None:
    """Refuse overrides of methods that do not run, since they would change nothing."""
    for override in overrides:
        name = override.partition("=")[0].partition(".")[0].strip()
        if name in (*names, "data"):
            continue
        if name in described:
            raise ConfigError(f"--set {override}: {name} is not among --methods {','.join(names)}")
        # With a cutoff of 0 there is always a nearest name.
        [near] = get_close_matches(name, [*names, *described, "data"], n=1, cutoff=0)
        raise ConfigError(f"--set {override}: there is no method {name}: the nearest is {near}")


def _check(name: str, kind: str, options: Mapping[str, Any]) -> Any:
    """Check options against the schema of a kind; errors name the method."""
    if kind == "segkit":
        for key, place in _OF_THE_BENCHMARK.items():
            if key in options:
                raise ConfigError(f"method {name}: {key} is the same for all methods: give it {place}")
        if "objects" in options:
            raise ConfigError(f"method {name}: objects is for segkit train and predict: leave it out")
        try:
            return Config.from_options(options)
        except ConfigError as error:
            raise ConfigError(f"method {name}: {error}") from error
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigError(f"method {name}: kind {kind!r} is none of segkit, {', '.join(_KINDS)}")
    schema = _schema_of(kind)
    try:
        found = schema.model_validate(options)
        found.build(0).check_options()
        return found
    except ConfigError as error:
        raise ConfigError(f"method {name}: {error}") from error
    except SchemaError as error:
        # One line, so one fault at a time: the first.
        fault = error.errors()[0]
        location = locate(fault, options)[0]
        if fault["type"] == "extra_forbidden":
            near = get_close_matches(str(fault["loc"][-1]), list(schema.model_fields), n=1, cutoff=0)
            message = (
                f"unknown key {'.'.join(location)}: the nearest is {near[0]}; "
                f"there are {', '.join(schema.model_fields)}"
            )
        else:
            message = explain_value(fault, location)
        raise ConfigError(f"method {name}: {message}") from error
