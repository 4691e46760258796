"""The methods a benchmark compares: their names, options, and how each is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt
from pydantic import ValidationError as SchemaError

from segkit.config.read import locate, read_options, shipped
from segkit.config.schema import BankConfig, Config, DataConfig
from segkit.errors import ConfigError
from segkit.segmentation.base import BaseSegmenter


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _ForestOptions(_Options):
    """Options of `PixelForest`; without a bank it has the filters of ilastik."""

    bank: BankConfig | None = None
    n_estimators: PositiveInt = 100
    training_pixels: PositiveInt = 30_000

    def build(self, seed: int, checkpoint: str | None = None) -> BaseSegmenter:  # noqa: ARG002
        """Make the forest; it is grown in one go, without a checkpoint."""
        from segkit.baselines import PixelForest

        options = self.model_dump(exclude={"bank"})
        bank = None if self.bank is None else self.bank.build(seed)
        return PixelForest(bank, **options, n_jobs=-1, random_state=seed)


class _NetOptions(_Options):
    max_steps: PositiveInt = 2000
    batch_size: PositiveInt = 4
    learning_rate: PositiveFloat = 1e-4
    crop: PositiveInt = 256
    eval_every: PositiveInt = 25
    patience: PositiveInt = 10
    augment: bool = True
    device: str = "auto"


class _FCNOptions(_NetOptions):
    """Options of `FCN`."""

    backbone: Literal["vgg16", "vgg19", "squeezenet1_0", "resnet50"] = "vgg16"
    output_stride: Literal[8, 16, 32] = 8
    weights: str | None = None
    preprocessing: Literal["torchvision", "caffe"] = "torchvision"
    n_hidden: PositiveInt = 4096

    def build(self, seed: int, checkpoint: str | None = None) -> BaseSegmenter:
        """Make the network; it is drawn from the seed."""
        from segkit.baselines import FCN

        return FCN(**self.model_dump(), checkpoint=checkpoint, random_state=seed)


class _UNetOptions(_NetOptions):
    """Options of `UNet`."""

    n_filters: PositiveInt = 32
    depth: PositiveInt = 4

    def build(self, seed: int, checkpoint: str | None = None) -> BaseSegmenter:
        """Make the network; it is drawn from the seed."""
        from segkit.baselines import UNet

        return UNet(**self.model_dump(), checkpoint=checkpoint, random_state=seed)


_KINDS: dict[str, type[_Options]] = {"forest": _ForestOptions, "fcn": _FCNOptions, "unet": _UNetOptions}

DEFAULT_METHODS: dict[str, dict[str, Any]] = {
    "segkit-vgg": {"kind": "segkit", "title": "segkit (VGG16)", "bank": {"name": "vgg16"}},
    "segkit-networks": {
        "kind": "segkit",
        "title": "segkit (VGG19 and SqueezeNet)",
        **read_options(shipped("two-networks")),
    },
    "segkit-scattering": {"kind": "segkit", "title": "segkit (scattering)"},
    "segkit-paper": {
        "kind": "segkit",
        "title": "recipe of the paper (VGG16)",
        **read_options(shipped("paper-004")),
    },
    "segkit-orbit": {"kind": "segkit", "title": "segkit (orbit bank)", "bank": {"name": "orbit"}},
    "fcn": {"kind": "fcn", "title": "FCN-8s (pre-trained)", "weights": "imagenet"},
    "fcn-scratch": {"kind": "fcn", "title": "FCN-8s (from scratch)"},
    "unet": {"kind": "unet", "title": "U-Net"},
    "forest": {"kind": "forest", "title": "pixel forest"},
    "forest-vgg": {"kind": "forest", "title": "pixel forest (VGG16)", "bank": {"name": "vgg16"}},
    "convpaint": {
        "kind": "forest",
        "title": "pixel forest on convpaint's filters (VGG16)",
        "bank": {"name": "vgg16", "layers": ["conv1_1", "conv1_2", "conv2_1"], "pyramid": [1.0, 0.5, 0.25]},
    },
    "forest-scattering": {
        "kind": "forest",
        "title": "pixel forest (scattering)",
        "bank": {"name": "scattering"},
    },
}


# Options of a training configuration that all methods of a benchmark share, and where they are given.
_OF_THE_BENCHMARK = {
    "data": "beside the methods, for example --set data.unlabelled=VALUE",
    "seed": "by --seeds",
}


@dataclass(frozen=True)
class Method:
    """A way of segmenting images that a benchmark runs.

    Parameters
    ----------
    name : str
        What the command line and the results call it.
    title : str
        What reports call it.
    kind : {"segkit", "forest", "fcn", "unet"}
        Which estimator it is.
    options : Config or model
        Its options, checked.
    """

    name: str
    title: str
    kind: str
    options: Any

    def build(self, seed: int, checkpoint: str | None = None) -> BaseSegmenter:
        """Make the estimator, seeded; networks write and go on from a checkpoint."""
        if isinstance(self.options, Config):
            return self.options.model_copy(update={"seed": seed}).build()
        segmenter: BaseSegmenter = self.options.build(seed, checkpoint)
        return segmenter

    def to_dict(self) -> dict[str, Any]:
        """Title, kind and every option, in values that JSON can hold; `from_dict` reads it back."""
        config = self.options.model_dump(mode="json", exclude=set(_OF_THE_BENCHMARK))
        return {"title": self.title, "kind": self.kind, "config": config}

    @classmethod
    def from_dict(cls, name: str, entries: Mapping[str, Any]) -> Self:
        """Make the method that `to_dict` gave."""
        return cls(name, entries["title"], entries["kind"], _check(name, entries["kind"], entries["config"]))


def load_methods(
    names: Iterable[str], path: Path | None = None, overrides: Iterable[str] = ()
) -> list[Method]:
    """Choose methods and their options.

    Parameters
    ----------
    names : iterable of str
        Those to run, of `DEFAULT_METHODS` or of the file.
    path : Path, optional
        YAML file of methods: ``NAME: {kind: segkit|forest|fcn|unet, title: ..., ...options}``. It adds to the
        default ones, or replaces those of the same name. Its section ``data`` is for `load_data`.
    overrides : iterable of str
        ``NAME.key=value`` of the chosen methods, for example ``fcn.weights=FILE``; those of ``data`` are for `load_data`.

    Returns
    -------
    list of Method
        In the order of `names`.

    Raises
    ------
    ConfigError
        If a method, a key or a value does not exist or fit.
    """
    names, overrides = list(dict.fromkeys(names)), list(overrides)
    known = read_options(path, overrides, base=DEFAULT_METHODS)
    known.pop("data", None)
    for name in known:
        if not isinstance(name, str):
            raise ConfigError(f"configuration {path}: method {name} is no text: put its name in quotes")
    _refuse_unused(overrides, names, read_options(path, base=DEFAULT_METHODS))
    methods = []
    for name in names:
        if name not in known:
            raise ConfigError(
                f"method {name}: choose among {', '.join(known)}, or describe it in a --config file"
            )
        if not re.fullmatch(r"[A-Za-z0-9_-][\w.-]*", name):
            raise ConfigError(
                f"method {name!r}: use letters, digits, dashes, underscores and, but not first, dots: it names files"
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
    """Read what mask values mean: the section ``data`` of the file and of the overrides of `load_methods`.

    Parameters
    ----------
    path : Path, optional
        YAML file of methods.
    overrides : iterable of str
        ``key=value``, for example ``data.unlabelled=255``.

    Returns
    -------
    DataConfig
        Names of the classes, and the value of unlabelled pixels.

    Raises
    ------
    ConfigError
        If a key or a value does not exist or fit.
    """
    return Config.from_options({"data": read_options(path, overrides).get("data", {})}).data


def _refuse_unused(overrides: Sequence[str], names: Sequence[str], described: Mapping[str, Any]) -> None:
    """Refuse overrides of methods that do not run: they would change nothing."""
    for override in overrides:
        name = override.partition("=")[0].partition(".")[0].strip()
        if name in (*names, "data"):
            continue
        if name in described:
            raise ConfigError(f"--set {override}: {name} is not among --methods {','.join(names)}")
        [near] = get_close_matches(name, [*names, *described, "data"], n=1, cutoff=0)
        raise ConfigError(f"--set {override}: there is no method {name}: the nearest is {near}")


def _check(name: str, kind: str, options: Mapping[str, Any]) -> Any:
    """Check options against the schema of a kind; what is wrong is told with the method's name."""
    if kind == "segkit":
        for key, place in _OF_THE_BENCHMARK.items():
            if key in options:
                raise ConfigError(f"method {name}: {key} is the same for all methods: give it {place}")
        try:
            return Config.from_options(options)
        except ConfigError as error:
            raise ConfigError(f"method {name}: {error}") from error
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigError(f"method {name}: kind {kind!r} is none of segkit, {', '.join(_KINDS)}")
    schema = _KINDS[kind]
    try:
        return schema.model_validate(options)
    except SchemaError as error:
        fault = error.errors()[0]
        key = ".".join(locate(fault, options)[0])
        if fault["type"] == "extra_forbidden":
            near = get_close_matches(str(fault["loc"][-1]), list(schema.model_fields), n=1, cutoff=0)
            message = (
                f"unknown key {key}: the nearest is {near[0]}; there are {', '.join(schema.model_fields)}"
            )
        else:
            message = f"{key}={fault['input']!r}: {fault['msg'][0].lower()}{fault['msg'][1:]}"
        raise ConfigError(f"method {name}: {message}") from error
