"""Trainings repeated from what their model files record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segkit._common import count
from segkit.config.read import read_options
from segkit.config.schema import Config
from segkit.errors import InputError, ModelFileError
from segkit.images import Dataset
from segkit.segmentation.model_file import package_versions, read_model
from segkit.segmentation.segmenter import Segmenter, segmenter_of


@dataclass(frozen=True)
class RecordedTraining:
    """Record of a training in a model file."""

    path: Path
    options: dict[str, Any]
    only_annotated: bool
    n_images: int
    digest: str
    versions: dict[str, str]

    def configure(self, overrides: Iterable[str] = ()) -> Config:
        """Return the recorded configuration; overrides, ``key=value``, win over it."""
        return Config.from_options(read_options(None, overrides, base=self.options))

    def compare(
        self, segmenter: Segmenter, dataset: Dataset, images: str, *, other_images: bool = False
    ) -> list[str]:
        """Compare training images, and versions, with those of the model."""
        digest = segmenter.digest_training_set(
            dataset.images, dataset.masks, instances=dataset.instances, label_map=dataset.label_map
        )
        now = len(dataset.images)
        differs = "some of them differ" if now == self.n_images else f"now there are {now}"
        notes = []
        if digest != self.digest and not other_images:
            raise InputError(
                f"{images}: not the images and masks that {self.path} was trained on ({count(self.n_images, 'image')}; "
                f"{differs}): give those, or add --other-images to train with its settings on these"
            )
        if digest != self.digest:
            notes.append(f"Settings of {self.path}, on other images: {self.n_images} then, {now} now.")
        versions = package_versions()
        unlike = [
            f"{name} {version} then, {versions[name]} now"
            for name, version in self.versions.items()
            if versions.get(name, version) != version
        ]
        if unlike:
            notes.append(f"Other versions, so the model may differ a little: {'; '.join(unlike)}.")
        return notes


def read_training(path: Path) -> RecordedTraining:
    """Read what a model file records of its training."""
    header, arrays = read_model(path)
    summary = segmenter_of(header, arrays, str(path)).summary_
    settings = header["settings"]
    if settings is None:
        raise ModelFileError(
            f"{path}: it records no settings of its training, as models by Python do not: give --config a name or a "
            f"YAML file"
        )
    return RecordedTraining(
        path,
        settings["config"],
        settings["only_annotated"],
        summary.n_images,
        summary.training_set_sha256,
        header["versions"],
    )
