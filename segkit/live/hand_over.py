"""From strokes to a model file, and the command that makes the same one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

import yaml

from segkit._common import Progress
from segkit._files import write_text
from segkit.config.schema import Config
from segkit.errors import InputError
from segkit.images import load_pairs
from segkit.live.arrays import ArrayProject
from segkit.live.project import Project

MODEL, OPTIONS = "model.segkit", "train.yaml"


class HandOver(NamedTuple):
    """Export of a session.

    Parameters
    ----------
    model : Path
        The trained model.
    masks : Path
        Folder of the label images.
    options : Path
        YAML file of the options of training.
    command : str
        The ``segkit train`` command that makes the same model, to rounding.
    """

    model: Path
    masks: Path
    options: Path
    command: str


def hand_over(
    project: Project | ArrayProject,
    config: Config,
    progress: Progress | None = None,
    *,
    model: str | Path | None = None,
) -> HandOver:
    """Train on the saved label images of a project, as ``segkit train`` does."""
    if not project.annotated():
        raise InputError("nothing is labelled yet: draw strokes of two classes or more, then export")
    meanings = project.training_options()
    options = config.model_dump(mode="json", exclude_defaults=True)
    of_images = {key: value for key, value in options.get("data", {}).items() if key in ("axes", "range")}
    of_masks = {"labels": meanings["labels"], "unlabelled": meanings["unlabelled"], "masks": "classes"}
    options["data"] = of_images | of_masks | {"only_annotated": True}
    settings = Config.from_options(options)
    images, masks = project.training_files()
    output = project.output
    assert output is not None  # else training_files would have raised
    dataset = load_pairs(
        images,
        masks,
        only_annotated=True,
        masks_are="classes",
        reading=settings.data.reading,
        **meanings,
    )
    segmenter = settings.build(z_spacing=dataset.z_spacing).fit(
        dataset.images, dataset.masks, label_map=dataset.label_map, progress=progress
    )
    segmenter.note_files(dataset.dtypes, dataset.pixel_sizes, dataset.reading)
    written = output / MODEL if model is None else Path(model)
    files = HandOver(written, masks, output / OPTIONS, "")
    write_text(files.options, yaml.safe_dump(options, sort_keys=False, allow_unicode=True))
    segmenter.save(
        files.model,
        embed_weights=settings.training.embed_weights,
        settings=settings.model_dump(mode="json"),
    )
    words = ["segkit", "train", str(images), str(files.masks), "-o", str(files.model)]
    words += ["--config", str(files.options), "--overwrite"]
    return files._replace(command=shlex.join(words))
