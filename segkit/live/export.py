"""A session's labels handed over: the model that `segkit train` makes of them, its options, and its command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from segkit._common import Progress
from segkit._common.files import remove_if_empty, write_text
from segkit.config.schema import Config
from segkit.errors import InputError, SegkitError
from segkit.images.record import ELSEWHERE, HIDDEN, Record
from segkit.live.arrays import ArrayProject
from segkit.live.events import Shown
from segkit.live.project import Project
from segkit.segmentation.model_file import read_model
from segkit.segmentation.segmenter import Segmenter

_MODEL, _OPTIONS = "model.segkit", "train.yaml"


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
    objects : str
        How the model counts objects, in words; empty without a background.
    shown : {"kernel machine", "network"}
        Which of the two the model is: the one whose predictions are shown.
    """

    model: Path
    masks: Path
    options: Path
    command: str
    objects: str
    shown: Shown = "kernel machine"


def training_options(project: Project | ArrayProject, config: Config) -> dict[str, Any]:
    """Return the options with which ``segkit train`` trains on the label images of a project."""
    options = config.model_dump(
        mode="json", exclude_unset=True
    )  # the name of a bank is a default of its options
    data = options.get("data", {})
    of_images = {key: data[key] for key in ("axes", "range", "channels") if data.get(key) is not None}
    if isinstance(project, Project) and (named := project.reading.unnamed) is not None:
        # planes need no option: there is a label image of each, and new files are read alike
        of_images |= {"axes": named} if len(named) > len("ZYX") or "C" in named else {}
    of_masks = project.training_options() | {"masks": "classes", "only_annotated": True}
    return options | {"data": of_images | of_masks}


def hand_over(
    project: Project | ArrayProject,
    config: Config,
    progress: Progress | None = None,
    *,
    model: str | Path | None = None,
    trained: Segmenter | None = None,
) -> HandOver:
    """Train on the saved label images of a project, as ``segkit train`` does, or write what was `trained` on them."""
    if not project.annotated():
        raise InputError("nothing is labelled yet: draw strokes of two classes or more, then export")
    options = training_options(project, config)
    settings = Config.from_options(options)
    images, masks = project.training_files()
    assert project.output is not None  # else training_files would have raised
    files = HandOver(Path(model or project.output / _MODEL), masks, project.output / _OPTIONS, "", "")
    # the project is locked already, and files of its labels may be half written
    record = Record(project.output, project.output / HIDDEN / "new", replaces_foreign=False)
    own = [path for path in (files.options, files.model) if path.parent == project.output]
    record.refuse_changed([Path(path.name) for path in own if not _is_model(path)], cure=ELSEWHERE)
    dataset = settings.data.load_pairs(images, masks)
    segmenter = trained or settings.build(z_spacing=dataset.z_spacing).fit(
        dataset.images,
        dataset.masks,
        instances=dataset.instances,
        groups=dataset.files,
        label_map=dataset.label_map,
        progress=progress,
    )
    segmenter = segmenter.with_objects(**settings.objects.changes)
    segmenter.note_files(dataset.dtypes, dataset.pixel_sizes, dataset.reading)
    write_text(record.staging / _OPTIONS, yaml.safe_dump(options, sort_keys=False, allow_unicode=True))
    record.put("export", [Path(_OPTIONS)])
    remove_if_empty(record.staging)
    segmenter.save(
        files.model,
        embed_weights=settings.training.embed_weights,
        settings=settings.model_dump(mode="json"),
    )
    words = [
        "segkit",
        "train",
        images,
        files.masks,
        "-o",
        files.model,
        "--config",
        files.options,
        "--overwrite",
    ]
    has_background = segmenter.label_map_.names[0] == project.classes[0].name
    objects = segmenter.objects_.rule if has_background else ""
    return files._replace(command=shlex.join(map(str, words)), objects=objects)


def _is_model(path: Path) -> bool:
    """Return whether a file is a model, which `segkit train` may have written: the command that is printed does."""
    try:
        read_model(path)
    except SegkitError:
        return False
    return True
