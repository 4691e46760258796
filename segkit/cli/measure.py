"""The command ``segkit measure``: every object of masks, in tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from segkit.cli.options import (
    OF_MASKS,
    ImagesOption,
    OverlayOption,
    OverwriteOption,
    data_option,
    read_data,
)
from segkit.cli.terminal import progress_bars, say

if TYPE_CHECKING:
    from segkit.objects.link import LinkBy
    from segkit.objects.tables import ImageSummary


_KNOWN = (*OF_MASKS, "pixel_size")


def measure(
    masks: Annotated[
        Path,
        typer.Argument(
            help="Folder of label images, masks of classes or outlines (sub-folders too), or one file."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for objects.csv and images.csv.")],
    images: ImagesOption = None,
    overlay: OverlayOption = False,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="planes|time",
            help="Objects of neighbouring planes that overlap are one body (volumes.csv), those of consecutive times one "
            "track (tracks.csv); simple linking, without gaps and divisions.",
        ),
    ] = None,
    set_: Annotated[list[str] | None, data_option(*_KNOWN)] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Measure every object of masks: tables of objects and of images, for a spreadsheet."""
    from segkit.objects.folders import measure_folder
    from segkit.segmentation.outcome import KINDS

    data = read_data(set_, *_KNOWN)
    with progress_bars() as follow:
        result = measure_folder(
            masks,
            output,
            images=images,
            axes=data.axes,
            **data.meanings,
            pixel_size=data.pixel_size,
            overlay=overlay,
            link=cast("LinkBy | None", link),
            overwrite=overwrite,
            skip=KINDS,
            progress=follow,
        )
    say(*result.messages, *describe_objects(result.images))
    tables = [str(path) for path in result.files if path.suffix == ".csv"]
    say(f"Tables: {', '.join(tables)}")
    if link is not None:
        say(f"Label images with the linked numbers in {output / 'linked'}")
    if overlay:
        say(f"overlay in {output / 'overlay'}")


def describe_objects(images: Sequence[ImageSummary]) -> list[str]:
    """Describe how many objects there are, in how many images, how large, and of which classes."""
    import numpy as np

    from segkit.images.pixel_size import describe_sizes

    areas = np.concatenate([image.areas for image in images])
    line = f"{_many(areas.size, 'object')} in {_many(len(images), 'image')}"
    if areas.size:
        each = f", {areas.size / len(images):,.1f} an image" if len(images) > 1 else ""
        line += f"{each} (median area {np.median(areas):,g} px{_in_micrometres(images)})"
    counts = sum((Counter(image.counts) for image in images), Counter())
    shares = ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items()))
    sizes = describe_sizes((image.pixel_size, image.size_source) for image in images)
    return [line, *([f"By class: {shares}"] if len(counts) > 1 else []), *sizes]


def _many(number: int, noun: str) -> str:
    """Describe how many there are, with commas: "1,234 objects"."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def _in_micrometres(images: Sequence[ImageSummary]) -> str:
    """Write the median area of objects in square micrometres if all pixel sizes are known."""
    import numpy as np

    if any(image.pixel_size is None for image in images):
        return ""
    areas = [image.areas * math.prod(image.pixel_size or ()) for image in images]
    return f", {np.median(np.concatenate(areas)):.4g} µm²"
