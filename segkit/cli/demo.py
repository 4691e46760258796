"""The command ``segkit demo``: the main job from end to end on made-up pictures, with nothing to download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segkit.cli.options import OverwriteOption
from segkit.cli.terminal import progress_bars, say


def demo(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for images, model and pictures; by default segkit-demo, or segkit-demo-objects.",
        ),
    ] = None,
    objects: Annotated[
        bool, typer.Option("--objects", help="Count and measure made-up nuclei, and no lesions.")
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Make a small set of lifelike images, train on a few, segment and score the others. No download."""
    from segkit.images.outputs import refuse_existing, refuse_unwritable

    output = output or Path("segkit-demo-objects" if objects else "segkit-demo")
    refuse_existing([output], overwrite=overwrite)
    refuse_unwritable(output / "images" / "1.png", within=output)
    from segkit.cli import demo_runs

    run = demo_runs.run_object_demo if objects else demo_runs.run_demo
    with progress_bars() as follow:
        result = run(output, progress=follow)
    say(result.told)
