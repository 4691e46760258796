"""Trainings repeated from what their model files record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from segkit.config.read import read_options
from segkit.config.schema import Config
from segkit.errors import ConfigError, ModelFileError, count
from segkit.features.weights import missing_download
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
        """Return the recorded configuration; overrides, ``key=value``, win over it.

        A ConfigError says that it would download what the model file names, and no override does.
        """
        given = list(overrides)
        config = Config.from_options(read_options(None, given, base=self.options))
        for key, bank in _banks_in("bank", config.model_dump(mode="json")["bank"]):
            source = missing_download(bank)
            if source is not None and not any(source in override for override in given):
                option = "network" if bank["weights"] == "pretrained" else "weights"
                raise ConfigError(
                    f"{self.path} names {source}, whose weights are not here, and a model file starts no download: give "
                    f"their file (--set {key}.weights=FILE), or name it yourself (--set {key}.{option}={source})"
                )
        return config

    def compare(self, segmenter: Segmenter, dataset: Dataset, groups: Iterable[str]) -> list[str]:
        """Say in what training set, groups of its images, and versions, differ from those of the model."""
        notes = []
        digest = segmenter.digest_training_set(
            dataset.images,
            dataset.masks,
            instances=dataset.instances,
            groups=groups,
            label_map=dataset.label_map,
        )
        if digest != self.summary.training_set_sha256:
            then, now = self.summary.n_images, len(dataset.images)
            differs = "some of them, or --groups, differ" if now == then else f"now there are {now}"
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


def _banks_in(key: str, options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the options of all banks, at any depth, each with its dotted key."""
    if isinstance(options, dict):
        yield key, options
    parts = options.items() if isinstance(options, dict) else enumerate(options or ())
    for name, part in parts:
        if isinstance(part, dict | list):
            yield from _banks_in(f"{key}.{name}", part)


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
