"""Run every method on every split, keep what is done, and put the results together."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segkit import __version__
from segkit._common import Progress, count, pass_on
from segkit.benchmark.digests import digest_files, digest_weights
from segkit.benchmark.machine import machine
from segkit.benchmark.methods import Method
from segkit.benchmark.protocol import Split, few_shot_split, read_groups, read_stem_list
from segkit.benchmark.results import FORMAT_VERSION, read_json, write_csv, write_json
from segkit.errors import InputError, OutputError
from segkit.evaluation.folders import TOLERANCE
from segkit.images import LabelMap, load_pairs

USUAL_PICTURE_SIZE = 5
WRITTEN = ("units", "predictions", "results.json", "results.csv", "manifest.json", "index.html")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unit:
    """A method, a number of training images and a seed, with the split they mean."""

    method: Method
    n_train: int
    seed: int
    split: Split

    @property
    def name(self) -> str:
        """Name of its files."""
        return _unit_name(self.method.name, self.n_train, self.seed)


@dataclass
class Benchmark:
    """Methods on the few-shot splits of one data set.

    Parameters
    ----------
    images, masks : Path
        Folders of images and masks of equal stems.
    output : Path
        Folder of the results. Each unit is written into ``units/`` when it is done, and the predictions of some
        into ``predictions/``.
    methods : sequence of Method
        Methods to compare.
    train_sizes, seeds : sequence of int
        Numbers of training images, and seeds of the splits.
    groups : Path, optional
        CSV file of the group of each image; see `read_groups` and `few_shot_split`. Without it the pages of a
        file are a group.
    test : Path, optional
        Text file of the test images, one stem a line; see `few_shot_split`. If all images are pages of one file,
        the others are trained on.
    labels : mapping of int to str, optional
        The class name of each mask value.
    unlabelled : int, optional
        The mask value of pixels nobody annotated.
    """

    images: Path
    masks: Path
    output: Path
    methods: Sequence[Method]
    train_sizes: Sequence[int]
    seeds: Sequence[int]
    groups: Path | None = None
    test: Path | None = None
    labels: Mapping[int, str] | None = None
    unlabelled: int | None = None
    stems: list[str] = field(init=False)
    label_map: LabelMap = field(init=False)
    messages: list[str] = field(init=False)

    def __post_init__(self) -> None:
        dataset = load_pairs(self.images, self.masks, labels=self.labels, unlabelled=self.unlabelled)
        self.stems, self.label_map, self.messages = dataset.stems, dataset.label_map, dataset.messages
        self._n_channels = dataset.images[0].shape[2]
        self._group_of = self._group(dataset.files)
        self._tested = None if self.test is None else read_stem_list(self.test, self.stems)
        self.left_out: list[dict[str, Any]] = []
        self.units = list(self._plan())
        if not self.units:
            raise InputError(
                f"{count(len(self.stems), 'annotated image')}, too few for any of the sizes "
                f"{', '.join(map(str, self.train_sizes))}: annotate more, or ask for smaller --train-sizes"
            )
        self._data_digest = digest_files(self.images, self.masks)
        self._weights_digest = {method.name: digest_weights(method) for method in self.methods}

    @property
    def pictures(self) -> dict[str, int]:
        """The number of training images and the seed whose predictions are kept."""
        sizes = sorted({unit.n_train for unit in self.units})
        usual = USUAL_PICTURE_SIZE in sizes
        n_train = USUAL_PICTURE_SIZE if usual else statistics.median_high(sizes)
        return {"n_train": n_train, "seed": min(unit.seed for unit in self.units)}

    @property
    def n_done(self) -> int:
        """How many units are done."""
        return sum(self._done(unit) is not None for unit in self.units)

    def run(
        self, *, progress: Progress = pass_on, tell: Callable[[str], object] = logger.warning
    ) -> dict[str, Any]:
        """Run the units that are not done, then write ``results.json``, ``results.csv`` and ``manifest.json``.

        Parameters
        ----------
        progress : callable, optional
            As for `Segmenter.fit`.
        tell : callable, optional
            Is told of units that failed; by default the log is.

        Returns
        -------
        dict
            The content of ``results.json``.
        """
        for unit in progress(self.units, "Benchmark"):
            if error := self.outcome(unit).get("error"):
                tell(f"{unit.name} failed: {error}")
        result = self.collect()
        write_json(self.output / "results.json", result)
        write_json(self.output / "manifest.json", {"format_version": FORMAT_VERSION} | result["manifest"])
        write_csv(self.output / "results.csv", result["records"], self.label_map)
        return result

    def outcome(self, unit: Unit) -> dict[str, Any]:
        """Run a unit, if it is not done with these very options and data.

        Parameters
        ----------
        unit : Unit
            One of `units`.

        Returns
        -------
        dict
            ``unit`` and ``records`` as `run_unit` gives them, or ``error``.
        """
        return self._done(unit) or self._run(unit)

    def collect(self) -> dict[str, Any]:
        """Put the results of all units together."""
        found = [(unit, self._done(unit) or self._read(unit)) for unit in self.units]
        return {
            "format_version": FORMAT_VERSION,
            "name": self.images.resolve().parent.name
            if self.images.name == "images"
            else self.images.resolve().name,
            "label_map": self.label_map.to_dict(),
            "methods": {method.name: method.to_dict() for method in self.methods},
            "train_sizes": sorted({unit.n_train for unit in self.units}),
            "seeds": sorted({unit.seed for unit in self.units}),
            "tolerance": TOLERANCE,
            "left_out": self.left_out,
            "failures": [
                {
                    "method": unit.method.name,
                    "n_train": unit.n_train,
                    "seed": unit.seed,
                    "error": done["error"],
                }
                for unit, done in found
                if "error" in done
            ],
            "units": [done["unit"] for _, done in found if "unit" in done],
            "records": [record for _, done in found for record in done.get("records", [])],
            "pictures": self.pictures,
            "manifest": {
                "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "data": {"images": len(self.stems), "sha256": self._data_digest},
                "machine": machine(),
                "protocol": {
                    "train_sizes": sorted({*self.train_sizes, *(unit.n_train for unit in self.units)}),
                    "seeds": sorted({unit.seed for unit in self.units}),
                    "grouped": self._group_of is not None,
                    "test": self._tested,
                },
                "methods": {method.name: method.to_dict() for method in self.methods},
            },
        }

    def check_output(self, *, resume: bool = False, overwrite: bool = False) -> None:
        """Look at what the folder holds before anything is written.

        Parameters
        ----------
        resume : bool, default=False
            Whether to go on with the runs it holds: those of these images and masks are joined to `units`, whatever
            their method, size and seed.
        overwrite : bool, default=False
            Whether to remove the results it holds.

        Raises
        ------
        OutputError
            If it holds anything, unasked; if its runs are of other images, masks or options than these.
        InputError
            If its results are damaged or of another version.
        """
        if resume and overwrite:
            raise OutputError("--resume goes on and --overwrite starts anew: give one of them")
        entries = [path.name for path in self.output.glob("[!.]*")]
        left = [name for name in WRITTEN if name in entries]
        if left and not (resume or overwrite):
            raise OutputError(
                f"{self.output} holds {', '.join(left)}: add --resume to go on or --overwrite to start anew, "
                f"or choose another folder"
            )
        if entries and not left:
            raise OutputError(f"{self.output} holds other files: choose an empty folder, or a new one")
        if resume:
            if "results.json" in left:
                read_json(self.output / "results.json")
            self._join()
        for name in left if overwrite else []:
            path = self.output / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def picture_files(self, method: str, stem: str) -> tuple[Path, Path]:
        """Files of the predicted mask and of the probability maps that were kept of a test image."""
        folder = self._predictions(_unit_name(method, **self.pictures))
        return folder / "masks" / f"{stem}.tif", folder / "probability" / f"{stem}.tif"

    def _group(self, files: Sequence[str]) -> dict[str, str] | None:
        """Give the group of each image; pages of a file are one, for neighbours look alike."""
        if self.groups is not None:
            return read_groups(self.groups, self.stems, files=files)
        n_files = len(set(files))
        if n_files == len(files):
            return None
        if n_files > 1:
            return dict(zip(self.stems, files, strict=True))
        if self.test is None:
            raise InputError(
                f"all {len(files)} images are pages of one file, {files[0]}, which is not split between training "
                f"and test unasked: name the pages to test on by --test, or give pages groups by --groups"
            )
        return None

    def _split(self, n_train: int, seed: int) -> Split:
        return few_shot_split(self.stems, n_train, seed, groups=self._group_of, test=self._tested)

    def _join(self) -> None:
        """Join the finished runs of the folder, of whatever method, size and seed."""
        methods = {method.name: method for method in self.methods}
        units = {unit.name: unit for unit in self.units}
        strange = []
        for path in sorted((self.output / "units").glob("[!.]*.json")):
            try:
                found = read_json(path)
            except InputError:  # damaged, or of another version: as if it were not there
                continue
            if "unit" not in found:  # it failed
                continue
            run = found["unit"]
            name = run["method"]
            if name not in methods:
                methods[name] = Method.from_dict(name, found["method"])
                self._weights_digest[name] = digest_weights(methods[name])
            try:
                unit = Unit(
                    methods[name], run["n_train"], run["seed"], self._split(run["n_train"], run["seed"])
                )
            except InputError:  # there were more images
                strange.append(path.stem)
                continue
            units.setdefault(unit.name, unit)
            if found["fingerprint"] != self._fingerprint(unit):
                strange.append(unit.name)
        if strange:
            others = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
            raise OutputError(
                f"{self.output} holds runs of other images, masks or options, or of another segkit: {strange[0]}{others}; "
                f"choose another folder, or start anew with --overwrite"
            )
        self.methods = list(methods.values())
        places = list(methods)
        self.units = sorted(
            units.values(), key=lambda unit: (unit.n_train, unit.seed, places.index(unit.method.name))
        )

    def _plan(self) -> Iterable[Unit]:
        for n_train in sorted(set(self.train_sizes)):
            try:
                splits = {seed: self._split(n_train, seed) for seed in sorted(set(self.seeds))}
            except InputError as error:
                self.left_out.append({"n_train": n_train, "reason": str(error)})
                continue
            for seed, split in splits.items():
                for method in self.methods:
                    yield Unit(method, n_train, seed, split)

    def _options(self, unit: Unit) -> dict[str, Any]:
        """Everything that the scores of a unit depend on, but for images and masks."""
        return {
            "format_version": FORMAT_VERSION,
            "segkit": __version__,
            "label_map": self.label_map.to_dict(),
            "name": unit.method.name,
            "method": unit.method.to_dict(),
            "weights": self._weights_digest[unit.method.name],
            "n_train": unit.n_train,
            "seed": unit.seed,
            "train": list(unit.split.train),
            "test": list(unit.split.test),
            "groups": None
            if self._group_of is None
            else {stem: self._group_of[stem] for stem in unit.split.test},
            "tolerance": TOLERANCE,
        }

    def _fingerprint(self, unit: Unit) -> str:
        return hashlib.sha256(json.dumps([self._options(unit), self._data_digest]).encode()).hexdigest()

    def _job(self, unit: Unit) -> dict[str, Any]:
        fingerprint = self._fingerprint(unit)
        # A run with other options or data must not go on from this one's checkpoint.
        checkpoint = self._path(unit).with_name(f".{unit.name}-{fingerprint[:8]}.pt")
        places = {"images": str(self.images), "masks": str(self.masks), "checkpoint": str(checkpoint)}
        pictures = str(self._predictions(unit.name)) if self._keeps(unit) else None
        known = {"n_channels": self._n_channels, "pictures": pictures, "fingerprint": fingerprint}
        return self._options(unit) | places | known

    def _done(self, unit: Unit) -> dict[str, Any] | None:
        try:
            found = self._read(unit)
        except InputError:  # absent, damaged, or of another version
            return None
        good = "unit" in found and found.get("fingerprint") == self._fingerprint(unit)
        return found if good and self._has_pictures(unit) else None

    def _has_pictures(self, unit: Unit) -> bool:
        """Whether the predictions of a unit are there, or need not be."""
        return not self._keeps(unit) or all(
            path.exists() for stem in unit.split.test for path in self.picture_files(unit.method.name, stem)
        )

    def _keeps(self, unit: Unit) -> bool:
        return self.pictures == {"n_train": unit.n_train, "seed": unit.seed}

    def _run(self, unit: Unit) -> dict[str, Any]:
        job = self._job(unit)
        path = self._path(unit)
        job_file = path.with_name(f".{unit.name}.job.json")
        write_json(job_file, job)
        path.unlink(missing_ok=True)
        # what a run with other options or images has left
        shutil.rmtree(self._predictions(unit.name), ignore_errors=True)
        for checkpoint in path.parent.glob(f".{unit.name}-????????.pt"):
            if str(checkpoint) != job["checkpoint"]:
                checkpoint.unlink()
        # -P: a file of the user's folder must not pass for a module
        command = [sys.executable, "-P", "-m", "segkit.benchmark.unit", str(job_file), str(path)]
        try:
            process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        finally:
            job_file.unlink(missing_ok=True)
        if path.exists():
            Path(job["checkpoint"]).unlink(missing_ok=True)
        said = process.stderr.strip()
        if said:
            path.with_suffix(".log").write_text(process.stderr, encoding="utf-8")
        if not path.exists():
            killed = process.returncode < 0
            how = "was killed, most likely for want of memory" if killed else "ended without a result"
            last = f": {said.splitlines()[-1].strip()}" if said else ""
            error = f"the process {how} (exit status {process.returncode}){last}"
            write_json(
                path,
                {"format_version": FORMAT_VERSION, "fingerprint": job["fingerprint"], "error": error},
            )
        return self._read(unit)

    def _predictions(self, unit_name: str) -> Path:
        return self.output / "predictions" / unit_name

    def _path(self, unit: Unit) -> Path:
        return self.output / "units" / f"{unit.name}.json"

    def _read(self, unit: Unit) -> dict[str, Any]:
        return read_json(self._path(unit))


def _unit_name(method: str, n_train: int, seed: int) -> str:
    return f"{method}-n{n_train:02d}-seed{seed}"
