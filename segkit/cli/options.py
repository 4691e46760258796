"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ImagesArgument = Annotated[Path, typer.Argument(help="Folder of images (sub-folders too), or one image.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="YAML file of options; see configs/.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One option, for example bank.name=vgg16. May be repeated."
    ),
]
