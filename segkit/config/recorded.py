"""Trainings repeated from what their model files record."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from segkit.config.read import read_options
from segkit.config.schema import Config
from segkit.errors import ModelFileError, count
from segkit.images import Dataset
from segkit.segmentation.model_file import package_versions, read_model
from segkit.segmentation.segmenter import Segmenter, segmenter_of
from segkit.segmentation.summary import TrainingSummary


class RecordedTraining(NamedTuple):
    """Record of a training in a model file."""

    path: Path
    options: dict[str, Any]
    summary: TrainingSummary
    versions: dict[str, str]

    def configure(self, overrides: Iterable[str] = ()) -> Config:
        """Return the recorded configuration; overrides, ``key=value``, win over it."""
        return Config.from_options(read_options(None, overrides, base=self.options))

    def compare(self, segmenter: Segmenter, dataset: Dataset) -> list[str]:
        """Say in what training set, and versions, differ from those of the model."""
        notes = []
        digest = segmenter.digest_training_set(
            dataset.images, dataset.masks, instances=dataset.instances, label_map=dataset.label_map
        )
        if digest != self.summary.training_set_sha256:
            then, now = self.summary.n_images, len(dataset.images)
            differs = "some of them differ" if now == then else f"now there are {now}"
            notes.append(
                f"not the images and masks that {self.path} was trained on ({count(then, 'image')}; {differs}): its "
                "settings are used on these"
            )
        versions = package_versions()
        unlike = [
            f"{name} {version} then, {versions[name]} now"
            for name, version in self.versions.items()
            if versions.get(name, version) != version
        ]
        if unlike:
            notes.append(f"other versions, so the model may differ a little: {'; '.join(unlike)}")
        return notes


def read_training(path: Path) -> RecordedTraining:
    """Read what a model file records of its training."""
    header, arrays = read_model(path)
    segmenter = segmenter_of(header, arrays, str(path))
    if segmenter.settings_ is None:
        raise ModelFileError(
            f"{path}: it records no settings of its training, as models by Python do not: give --config a name or a "
            f"YAML file"
        )
    return RecordedTraining(path, segmenter.settings_, segmenter.summary_, header["versions"])
