"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segkit._common import Workers
from segkit.errors import ConfigError

if TYPE_CHECKING:
    from segkit.config.schema import DataConfig
    from segkit.images import PixelSize

ImagesArgument = Annotated[Path, typer.Argument(help="Folder of images (sub-folders too), or one image.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="YAML file of options; see configs/.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One option, for example bank.name=vgg16. May be repeated."
    ),
]
OnlyAnnotatedOption = Annotated[
    bool,
    typer.Option(
        "--only-annotated", help="Leave out images without a mask, and masks without a labelled pixel."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show errors and notes only, no progress.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")]
TitleOption = Annotated[
    str | None, typer.Option("--title", help="Title of the report; by default the name of its folder.")
]


def _set_limit(context: typer.Context, limit: str | None) -> str | None:
    """Set the limit for as long as the command runs."""
    from segkit._memory import memory_limit

    context.with_resource(memory_limit(limit))
    return limit


MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="Memory of the whole program, such as 2GiB or 500MB. [default: half of what is free]",
        callback=_set_limit,
    ),
]


def _set_device(context: typer.Context, name: str) -> str:
    """Compute on the device for as long as the command runs."""
    from segkit._device import device

    context.with_resource(device(name))
    return name


DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda",
        help="Where networks compute: on the processor (cpu), on a graphics card (cuda), or there if there is one (auto).",
        callback=_set_device,
    ),
]
LevelOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Level of a pyramid, for an image that is read by region. [default: 0; other images are read whole]",
    ),
]
LabelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="An option of images or masks, such as data.axes or data.labels, as for training.",
    ),
]
PixelSizeOption = Annotated[
    str | None,
    typer.Option(
        "--pixel-size",
        help="Size of a pixel in micrometres, such as 0.325, or height and width: 0.5,0.325. [default: from the files]",
    ),
]

SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="local|ADDRESS",
        help="Spread the work over workers of Dask: local ones, or those of the scheduler at an address.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Number of workers: local ones, of one thread each [default: one for each core], or to wait for.",
    ),
]


@contextmanager
def spread_over(scheduler: str | None, n_workers: int | None) -> Iterator[Workers | None]:
    """Start the workers that were asked for, and return what spreads work over them; None without any."""
    if scheduler is None and n_workers is None:
        yield None
        return
    from segkit._device import device_name
    from segkit.scale import Cluster

    if device_name() != "cpu":
        raise ConfigError(
            "--device beside --scheduler or --workers: workers compute on their processors; leave one of them out"
        )
    with Cluster("local" if scheduler is None else scheduler, n_workers=n_workers) as cluster:
        yield cluster.spread


def read_meanings(overrides: list[str] | None) -> dict[str, Any]:
    """Read the meaning of masks that are measured or scored: axes, names of values, classes or objects."""
    data = read_data(overrides, known=("axes", "labels", "unlabelled", "masks"))
    if data.instances is not None:
        raise ConfigError(
            "data.instances gives objects beside masks of classes, for training: give the objects as masks, and leave it out"
        )
    if data.range is not None or data.context:
        raise ConfigError(
            "data.range and data.context say how images are read, and masks are read here: leave them out"
        )
    return {
        "axes": data.axes,
        "labels": data.labels,
        "unlabelled": data.unlabelled,
        "masks_are": data.masks,
    }


def read_data(overrides: list[str] | None, *, known: Sequence[str] | None = None) -> DataConfig:
    """Read the section data; faults name the known options."""
    from segkit.config.schema import Config, DataConfig

    for override in overrides or []:
        if not override.strip().startswith("data."):
            names = ", ".join(known or DataConfig.model_fields)
            raise ConfigError(
                f"--set {override}: only options of data are known here ({names}): leave it out"
            )
    return Config.load(None, overrides or []).data


def read_pixel_size(text: str) -> PixelSize:
    """Read one number, or height and width."""
    from segkit.images.pixel_size import check_pixel_size

    try:
        sizes = [float(word) for word in re.split(r"[,\s]+", text.strip())]
    except ValueError as error:
        raise ConfigError(
            f"--pixel-size {text}: give micrometres, such as 0.325, or height and width, such as 0.5,0.325"
        ) from error
    return check_pixel_size((sizes[0], sizes[-1]) if len(sizes) < 3 else tuple(sizes))  # type: ignore[arg-type]
