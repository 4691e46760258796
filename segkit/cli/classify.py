"""The command ``segkit classify``: classes of objects from a few that were named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segkit.cli.options import OverwriteOption, folder_of_results
from segkit.cli.terminal import say


def classify(
    objects: Annotated[Path, typer.Argument(help="objects.csv of segkit predict or measure.")],
    labels: Annotated[
        Path,
        typer.Option(
            "--labels",
            help="CSV file with image, label and class of some of the objects, or GeoJSON of QuPath (a file or a folder).",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for objects.csv and images.csv.",
            parser=folder_of_results,
            metavar="PATH",
        ),
    ],
    overwrite: OverwriteOption = False,
) -> None:
    """Give every object a class, learnt from a few that you named, by its shape and intensities."""
    from segkit.objects.classify import classify_table

    found = classify_table(objects, labels, output, overwrite=overwrite)
    say(*found.describe(), found.decided_by, f"Tables: {output / 'objects.csv'}, {output / 'images.csv'}")
