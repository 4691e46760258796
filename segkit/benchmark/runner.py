"""Run every method on every split, keep finished runs, and collect the results."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit import __version__
from segkit._common import Progress, Workers, one_by_one, pass_on
from segkit._common.files import remove, remove_if_empty, write_text
from segkit.benchmark.machine import machine
from segkit.benchmark.methods import Method
from segkit.benchmark.object_splitting import read_annotated
from segkit.benchmark.protocol import Split, few_shot_split, read_groups, read_stem_list
from segkit.benchmark.results import FORMAT_VERSION, read_json, write_csv, write_json
from segkit.errors import ClusterError, InputError, OutputError, count
from segkit.evaluation.folders import TOLERANCE
from segkit.evaluation.object_scores import THRESHOLDS
from segkit.images import LabelMap, Reading, load_pairs, pair
from segkit.images.numbering import MasksAre
from segkit.images.outputs import refuse_files_for_folders
from segkit.images.record import ELSEWHERE, HIDDEN, Record
from segkit.scale.cluster import Cluster, workers_of

# Number of training images of the pictures in a report, if it is among the sizes.
_USUAL_PICTURE_SIZE = 5
# Files and folders that a benchmark writes; --overwrite removes them and nothing else.
_WRITTEN = ("units", "predictions", "results.json", "results.csv", "manifest.json", "index.html")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unit:
    """A run: a method, a number of training images and a seed, with their split."""

    method: Method
    n_train: int
    seed: int
    split: Split

    @property
    def name(self) -> str:
        """Name of the run's files."""
        return _unit_name(self.method.name, self.n_train, self.seed)


@dataclass
class Benchmark:
    """A comparison of methods on the few-shot splits of one data set.

    Parameters
    ----------
    images, masks : Path
        Folders of images and masks with equal stems.
    output : Path
        Folder of the results. A finished run is written into ``units/``, and predictions of some runs
        into ``predictions/``.
    methods : sequence of Method
        Methods to compare.
    train_sizes, seeds : sequence of int
        Numbers of training images, and seeds of the splits.
    groups : Path, optional
        CSV file of the group of each image; see `read_groups` and `few_shot_split`. Without it, the pages of a
        file are a group.
    test : Path, optional
        Text file of the test images, one stem a line; see `few_shot_split`. It is needed if all images are pages of
        one file; the other pages are then for training.
    labels : mapping of int to str, optional
        The class name of each mask value.
    unlabelled : int, optional
        The mask value of pixels without annotation.
    masks_are : {"classes", "instances"}, default="classes"
        What masks hold. Where they number objects ("instances"), predicted objects are scored beside pixels.
    reading : Reading, optional
        How the images are read, as in `segkit.images.load_pairs`. Percentiles are those of all images of the folder.
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
    masks_are: MasksAre = "classes"
    reading: Reading | None = None
    stems: list[str] = field(init=False)
    label_map: LabelMap = field(init=False)
    messages: list[str] = field(init=False)

    def __post_init__(self) -> None:
        dataset = load_pairs(
            self.images,
            self.masks,
            labels=self.labels,
            unlabelled=self.unlabelled,
            masks_are=self.masks_are,
            reading=self.reading,
        )
        self.reading = dataset.reading
        self.stems, self.label_map, self.messages = dataset.stems, dataset.label_map, dataset.messages
        self._n_channels = dataset.images[0].shape[2] // self.reading.n_planes
        self._group_of = self._group(dataset.files)
        self._tested = None if self.test is None else read_stem_list(self.test, self.stems)
        self.left_out: list[dict[str, Any]] = []
        self.units = list(self._plan())
        if not self.units:
            raise InputError(
                f"{count(len(self.stems), 'annotated image')}, too few for any of the sizes "
                f"{', '.join(map(str, self.train_sizes))}: annotate more, or ask for smaller --train-sizes"
            )
        # Digests tell on --resume whether a finished run has the same images, masks and weights.
        self._data_digest = _digest_files(self.images, self.masks)
        self._weights_digest = {method.name: _digest_weights(method) for method in self.methods}

    @property
    def pictures(self) -> dict[str, int]:
        """Number of training images and seed of the runs with stored predictions."""
        sizes = sorted({unit.n_train for unit in self.units})
        usual = _USUAL_PICTURE_SIZE in sizes
        n_train = _USUAL_PICTURE_SIZE if usual else statistics.median_high(sizes)
        return {"n_train": n_train, "seed": min(unit.seed for unit in self.units)}

    @property
    def objects(self) -> bool:
        """Whether objects are scored beside pixels."""
        return self.masks_are == "instances"

    @property
    def n_done(self) -> int:
        """Number of finished units."""
        return sum(self._done(unit) is not None for unit in self.units)

    def run(
        self,
        *,
        progress: Progress = pass_on,
        notify: Callable[[str], object] = _logger.warning,
        n_jobs: int | Cluster | Workers | None = None,
    ) -> dict[str, Any]:
        """Run the unfinished units, write the results, and return the content of ``results.json``.

        ``results.csv`` and ``manifest.json`` are written too. `progress` is as for `Segmenter.fit`; `notify` receives a
        message for each failed unit, by default the log. `n_jobs` is as for `Segmenter.fit`: each process takes a unit at
        a time.
        """
        # A failed unit does not end the benchmark: the others are of use without it.
        with (
            workers_of(n_jobs) as workers,
            closing((workers or one_by_one)(self.outcome, progress(self.units, "Benchmark"))) as finished,
        ):
            for unit, outcome in finished:
                try:
                    found = outcome()
                except ClusterError as died:  # its workers: it has failed, as one whose process died has
                    found = self._fail(unit, str(died))
                if "error" in found:
                    notify(f"{unit.name} failed: {found['error']}")
        result, record = self.collect(), self._record()
        write_json(record.staging / "results.json", result)
        write_json(record.staging / "manifest.json", {"format_version": FORMAT_VERSION} | result["manifest"])
        write_csv(record.staging / "results.csv", result["records"], self.label_map)
        record.put("results", [Path(name) for name in ("results.csv", "manifest.json", "results.json")])
        return result

    def outcome(self, unit: Unit) -> dict[str, Any]:
        """Run a unit, unless it is finished with the same options and data.

        Returns ``unit`` and ``records`` of `run_unit`, or ``error``.
        """
        return self._done(unit) or self._run(unit)

    def collect(self) -> dict[str, Any]:
        """Collect the results of all units."""
        found = [(unit, self._done(unit) or self._read_result(unit)) for unit in self.units]
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
            **({"object_thresholds": list(THRESHOLDS)} if self.objects else {}),
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
        """Check the output folder before anything is written.

        With `resume` its runs with these images and masks are added to `units`, for all methods, sizes and seeds; with
        `overwrite` its results are removed. An OutputError says that it is not empty and neither is given, that its runs
        come from other images, masks or options, or that files of somebody else are in the places of results; an
        InputError that its results are damaged or of another format version.
        """
        if resume and overwrite:
            raise OutputError("--resume continues and --overwrite starts again: give only one of them")
        refuse_files_for_folders(self.output, [_result("any"), _predictions("any") / "any"])
        entries = [path.name for path in self.output.glob("[!.]*")]
        left = [name for name in _WRITTEN if name in entries]
        if left and not (resume or overwrite):
            raise OutputError(
                f"{self.output} holds {', '.join(left)}: add --resume to go on or --overwrite to start again, "
                f"or choose another folder"
            )
        if entries and not left:
            raise OutputError(f"{self.output} holds other files: choose an empty folder, or a new one")
        if resume:
            if "results.json" in left:
                read_json(self.output / "results.json")
            self._join()
        if left and not (self.output / HIDDEN).is_dir():
            raise OutputError(
                f"{self.output} holds results without their record, the hidden folder {HIDDEN}: copy it, too, or choose "
                "another folder"
            )
        if resume:
            self._record().refuse_changed([Path(name) for name in left if Path(name).suffix])
        if overwrite:
            self._remove_results(left)

    def read_truth(self, stem: str) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Read an image, without context, and its mask of classes."""
        reading = replace(self.reading or Reading(), context=0)
        [item] = read_annotated(
            self.images, self.masks, [stem], objects=self.objects, unlabelled=self.unlabelled, reading=reading
        )
        return item.image, item.mask

    def picture_files(self, method: str, stem: str) -> tuple[Path, Path]:
        """Name the files of the stored mask and probability maps of a test image."""
        folder = self.output / _predictions(_unit_name(method, **self.pictures))
        return folder / "masks" / f"{stem}.tif", folder / "probability" / f"{stem}.tif"

    def _group(self, files: Sequence[str]) -> dict[str, str] | None:
        """Find the group of each image; pages of a file are one group, since neighbouring pages look alike."""
        if self.groups is not None:
            return read_groups(self.groups, self.stems, files=files)
        n_files = len(set(files))
        if n_files == len(files):
            return None
        if n_files > 1:
            return dict(zip(self.stems, files, strict=True))
        if self.test is None:
            raise InputError(
                f"all {len(files)} images are pages of one file, {files[0]}, whose pages may look alike, so "
                f"they are not split at random: name the test pages by --test, or groups of pages by --groups"
            )
        return None

    def _split(self, n_train: int, seed: int) -> Split:
        return few_shot_split(self.stems, n_train, seed, groups=self._group_of, test=self._tested)

    def _join(self) -> None:
        """Add the finished runs in the folder to the units, for all methods, sizes and seeds."""
        methods = {method.name: method for method in self.methods}
        units = {unit.name: unit for unit in self.units}
        foreign = []
        for path in sorted((self.output / "units").glob("[!.]*.json")):
            try:
                found = read_json(path)
            except InputError:  # damaged, or of another version: ignore it
                continue
            if "unit" not in found:  # failed: nothing to add
                continue
            run = found["unit"]
            self._refuse_mixture(run)
            name = run["method"]
            if name not in methods:
                methods[name] = Method.from_dict(name, found["method"])
                self._weights_digest[name] = _digest_weights(methods[name])
            try:
                unit = Unit(
                    methods[name], run["n_train"], run["seed"], self._split(run["n_train"], run["seed"])
                )
            except InputError:  # its split is impossible: it comes from more images
                foreign.append(path.stem)
                continue
            # Options of this call count: a run found with other ones is refused below.
            units.setdefault(unit.name, unit)
            if found["fingerprint"] != self._fingerprint(unit):
                foreign.append(unit.name)
        if foreign:
            others = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            raise OutputError(
                f"{self.output} holds runs of other images, masks or options, or of another segkit: {foreign[0]}{others}; "
                f"choose another folder, or start again with --overwrite"
            )
        self.methods = list(methods.values())
        places = list(methods)
        self.units = sorted(
            units.values(), key=lambda unit: (unit.n_train, unit.seed, places.index(unit.method.name))
        )

    def _remove_results(self, left: Sequence[str]) -> None:
        """Remove what a benchmark wrote; refuse to if there is anything else among it."""
        record, tops = self._record(), [self.output / name for name in left]
        found = [path for top in tops for path in (sorted(top.iterdir()) if top.is_dir() else [top])]
        record.refuse_changed([path.relative_to(self.output) for path in found], cure=ELSEWHERE)
        for path in (*found, self._hidden):
            remove(path)
        remove_if_empty(*tops)

    def _refuse_mixture(self, run: Mapping[str, Any]) -> None:
        """Refuse a finished run with scores of objects among others, and the reverse."""
        has_objects = run.get("objects", False)
        if has_objects != self.objects:
            holds = "with" if has_objects else "without"
            cure = f"{'add' if has_objects else 'leave out'} --set data.masks=instances"
            raise OutputError(
                f"{self.output} holds runs {holds} scores of objects: {cure}, or choose another folder"
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
        """List everything that affects the scores of a unit, except images and masks."""
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
            **({"objects": {"unlabelled": self.unlabelled}} if self.objects else {}),
            **({} if self.reading in (None, Reading()) else {"reading": asdict(self.reading)}),
        }

    def _fingerprint(self, unit: Unit) -> str:
        return hashlib.sha256(json.dumps([self._options(unit), self._data_digest]).encode()).hexdigest()

    def _job(self, unit: Unit) -> dict[str, Any]:
        fingerprint = self._fingerprint(unit)
        # The name holds the fingerprint: a run with other options or data must not continue from this checkpoint.
        checkpoint = self._hidden / f"{unit.name}-{fingerprint[:8]}.pt"
        places = {"images": str(self.images), "masks": str(self.masks), "checkpoint": str(checkpoint)}
        staged = self._record().staging / _predictions(unit.name)
        pictures = str(staged) if self._keeps(unit) else None
        known = {"n_channels": self._n_channels, "pictures": pictures, "fingerprint": fingerprint}
        return self._options(unit) | places | known

    def _done(self, unit: Unit) -> dict[str, Any] | None:
        try:
            found = self._read_result(unit)
        except InputError:  # absent, damaged, or of another version
            return None
        kept = unit.split.test if self._keeps(unit) else ()
        pictures = [path for stem in kept for path in self.picture_files(unit.method.name, stem)]
        good = "unit" in found and found.get("fingerprint") == self._fingerprint(unit)
        return found if good and all(path.exists() for path in pictures) else None

    def _keeps(self, unit: Unit) -> bool:
        return self.pictures == {"n_train": unit.n_train, "seed": unit.seed}

    def _run(self, unit: Unit) -> dict[str, Any]:
        job, record = self._job(unit), self._record()
        result, pictures = _result(unit.name), _predictions(unit.name)
        log = result.with_suffix(".log")
        record.refuse_changed([pictures, log, result])
        for place in (pictures, log, result):
            remove(record.staging / place)  # of a killed run
            record.withdraw(place)  # of a run with other options or images
        for checkpoint in self._hidden.glob(f"{unit.name}-????????.pt"):
            if str(checkpoint) != job["checkpoint"]:
                checkpoint.unlink()
        path, job_file = record.staging / result, self._hidden / f"{unit.name}.job.json"
        write_json(job_file, job)
        path.parent.mkdir(parents=True, exist_ok=True)
        # With -P, Python does not import modules from the user's folder.
        command = [sys.executable, "-P", "-m", "segkit.benchmark.unit", str(job_file), str(path)]
        # The process ends when its input does, so that none goes on after a killed benchmark.
        read_end, write_end = os.pipe()
        try:
            process = subprocess.run(
                command, stdin=read_end, capture_output=True, text=True, errors="replace", check=False
            )
        finally:
            os.close(read_end)
            os.close(write_end)
            job_file.unlink(missing_ok=True)
        errors = process.stderr.strip()
        if errors:
            write_text(record.staging / log, process.stderr)
        if not path.exists():
            # On Linux, a process that needs too much memory is killed by a signal: its exit status is negative.
            killed = process.returncode < 0
            how = "was killed, probably because memory was full" if killed else "ended without a result"
            last = f": {errors.splitlines()[-1].strip()}" if errors else ""
            return self._fail(unit, f"the process {how} (exit status {process.returncode}){last}")
        found = self._put(unit)
        # Without a result the process was killed: its checkpoint is kept, so that the next run continues.
        Path(job["checkpoint"]).unlink(missing_ok=True)
        return found

    def _fail(self, unit: Unit, error: str) -> dict[str, Any]:
        """Record why a unit has no result."""
        result = {"format_version": FORMAT_VERSION, "fingerprint": self._fingerprint(unit), "error": error}
        write_json(self._record().staging / _result(unit.name), result)
        return self._put(unit)

    def _put(self, unit: Unit) -> dict[str, Any]:
        """Put what a unit has left into its places, and read its result."""
        record, result = self._record(), _result(unit.name)
        places = (_predictions(unit.name), result.with_suffix(".log"), result)
        record.put(unit.name, [place for place in places if (record.staging / place).exists()])
        return self._read_result(unit)

    def _record(self) -> Record:
        """Read which files of the output folder a benchmark wrote."""
        return Record(self.output, self.output / HIDDEN / "new", replaces_foreign=False)

    @property
    def _hidden(self) -> Path:
        """Folder of jobs and checkpoints."""
        return self.output / HIDDEN / "units"

    def _path(self, unit: Unit) -> Path:
        return self.output / _result(unit.name)

    def _read_result(self, unit: Unit) -> dict[str, Any]:
        return read_json(self._path(unit))


def _result(unit_name: str) -> Path:
    return Path("units") / f"{unit_name}.json"


def _predictions(unit_name: str) -> Path:
    return Path("predictions") / unit_name


def _unit_name(method: str, n_train: int, seed: int) -> str:
    return f"{method}-n{n_train:02d}-seed{seed}"


def _digest_weights(method: Method) -> list[str]:
    """Compute the hexadecimal sha256 of each weight file of a method; downloads never change and are left out."""
    return [
        hashlib.sha256(Path(source).read_bytes()).hexdigest()
        for source in _weights_in(method.to_dict()["config"])
        if Path(source).is_file()
    ]


def _weights_in(options: Any) -> Iterator[str]:
    """Yield the values of all keys ``weights``, at any depth, in order."""
    if isinstance(options, dict):
        if isinstance(options.get("weights"), str):
            yield options["weights"]
        options = list(options.values())
    if isinstance(options, list):
        for part in options:
            yield from _weights_in(part)


def _digest_files(images: Path, masks: Path) -> str:
    """Compute the hexadecimal sha256 of the image and mask files, in order of stem."""
    sha = hashlib.sha256()
    for entry in pair(images, masks):
        for path in (entry.image, entry.mask):
            sha.update(entry.stem.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()
