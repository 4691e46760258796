"""The command ``segkit demo``: the main job from end to end on made-up pictures, with nothing to download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from segkit.cli.evaluate import evaluate
from segkit.cli.options import OverwriteOption
from segkit.cli.predict import predict
from segkit.cli.train import train

# Size of the pictures, and how many are to train and to test on: of lesions, and of nuclei.
SHAPE = (192, 256)
N_LESIONS = (5, 10)
N_NUCLEI = (4, 8)


def demo(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for images, model and results; by default segkit-demo, or segkit-demo-objects.",
        ),
    ] = None,
    objects: Annotated[
        bool, typer.Option("--objects", help="Count and measure made-up nuclei, and no lesions.")
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Make a small set of lifelike images; then train, predict and evaluate as these commands do. No download."""
    from segkit.cli.cells import PIXEL_SIZE
    from segkit.images.outputs import refuse_existing, refuse_unwritable

    output = output or Path("segkit-demo-objects" if objects else "segkit-demo")
    refuse_existing([output], overwrite=overwrite)
    refuse_unwritable(output / "images" / "1.png", within=output)
    _draw(output, objects=objects)
    masks = ["data.masks=instances"] if objects else []
    known, new = output / "train", output / "test"
    model, found, size = output / "model.segkit", output / "predictions", f"data.pixel_size={PIXEL_SIZE}"
    train(known / "images", known / "masks", model, set_=masks, overwrite=True)
    predict(
        model,
        new / "images",
        found,
        probability=not objects,
        overlay=True,
        objects=objects,
        set_=[size] if objects else [],
        overwrite=True,
    )
    scored = found / "objects" if objects else found
    evaluate(scored, new / "masks", output / "report", new / "images", set_=masks, overwrite=True)


def _draw(output: Path, *, objects: bool) -> None:
    """Draw pictures to train and to test on: of lesions, with masks of 0 and 255, or of nuclei, which masks number."""
    from segkit.cli.cells import PIXEL_SIZE, make_cell_set
    from segkit.cli.phantom import make_demo_set
    from segkit.images import PixelSize, write_image, write_labels, write_mask

    make, (n_train, n_test) = (make_cell_set, N_NUCLEI) if objects else (make_demo_set, N_LESIONS)
    for number, (image, mask) in enumerate(zip(*make(n_train + n_test, shape=SHAPE), strict=True), start=1):
        folder, name = output / ("train" if number <= n_train else "test"), f"{number:02d}.png"
        write_image(folder / "images" / name, image)
        if objects:
            write_labels(folder / "masks" / name, mask, PixelSize(PIXEL_SIZE, PIXEL_SIZE))
        else:
            write_mask(folder / "masks" / name, 255 * mask)
