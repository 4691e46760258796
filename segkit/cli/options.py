"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segkit.errors import ConfigError

if TYPE_CHECKING:
    from segkit.images import PixelSize

ImagesArgument = Annotated[Path, typer.Argument(help="Folder of images (sub-folders too), or one image.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="YAML file of options; see configs/.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One option, for example bank.name=vgg16. May be repeated."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, nothing but errors.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")]
PixelSizeOption = Annotated[
    str | None,
    typer.Option(
        "--pixel-size",
        help="Micrometres a pixel, 0.325, or height and width, 0.5,0.325; by default as the files say.",
    ),
]


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
