"""Folders of images segmented into folders of masks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
from sklearn.utils.validation import check_is_fitted

from segkit._common import LocalProgress, Progress, Workers, one_by_one, pass_on
from segkit._common.code import code_version
from segkit._common.files import describe_os_error, without_sync, write_text
from segkit.errors import ConfigError, InputError, OutputError, count
from segkit.evaluation.read_masks import CLASSES
from segkit.images import LabelMap, PixelSize, Reading
from segkit.images.large_image import is_by_region
from segkit.images.outputs import find_within, is_same, named, refuse_empty, refuse_nesting
from segkit.images.pixel_size import check_pixel_size
from segkit.images.record import (
    HIDDEN,
    ForeignFileError,
    Permissions,
    Record,
    digest_file,
    digest_values,
    results_in,
    stats_of,
)
from segkit.images.stems import FoundImages, find_images, root_of
from segkit.objects.tables import ImageObjects, write_images, write_objects
from segkit.scale.cluster import Cluster, workers_of
from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.large import make_by_region
from segkit.segmentation.memory import is_large
from segkit.segmentation.model_file import digest_model
from segkit.segmentation.notes import notes_on_images, notes_on_others, notes_on_removed
from segkit.segmentation.outcome import (
    FAILED,
    KINDS,
    SKIPPED,
    SUMMARY,
    TABLES,
    WRITTEN,
    ImageRow,
    Interrupted,
    Outcome,
    in_order,
    join_faults,
    put_summary,
    reason_of,
    row_of,
    rows_of_others,
)
from segkit.segmentation.results import (
    Appearance,
    Corrections,
    Job,
    Made,
    make_results,
    measured_place,
    read_measured,
)
from segkit.segmentation.segmenter import Segmenter

_OF_OBJECTS = ("objects", "geojson", "rois")
_DIGITS = 4


def predict_folder(
    segmenter: BaseSegmenter,
    images: str | Path,
    output: str | Path,
    *,
    probability: bool = False,
    overlay: bool = False,
    objects: bool = False,
    pixel_size: float | tuple[float, float] | None = None,
    axes: str | None = None,
    level: int | None = None,
    resume: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    overwrite_foreign: bool = False,
    n_jobs: int | Cluster | Workers | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Segment every image of a folder.

    Parameters
    ----------
    segmenter : BaseSegmenter
        Fitted.
    images : str or Path
        Folder of images (sub-folders too), or one image. Slides, OME-Zarr, and tiled TIFF files that do not fit into
        memory are read by region: they have no expected IoU, no warnings, and no outlines for ImageJ.
    output : str or Path
        Folder for the masks, of the same names and sub-folders: PNG, or TIFF where PNG cannot hold them, with the
        values of the training masks and the pixel size of the image. ``summary.csv`` holds the status of each image,
        its expected mean IoU, and in what it is unlike the training images.
    probability : bool, default=False
        Write probability maps as TIFF into ``output/probability``: of the second of two classes, or of each class.
    overlay : bool, default=False
        Write images with contours of classes, with `objects` of each object, as PNG into ``output/overlay``.
    objects : bool, default=False
        Tell objects that touch apart. Write label images (TIFF, ``output/objects``), outlines for QuPath
        (``output/geojson``) and ImageJ (``output/rois``, if roifile is installed), and tables ``objects.csv`` and
        ``images.csv``. Needs a `Segmenter`.
    pixel_size : float or tuple of float, optional
        Size of a square pixel in micrometres, or its height and width, in place of those that the files tell.
    axes : str, optional
        Names of the axes of stacks, as in `segkit.images.Reading`, in place of those of the training. The mask of a
        stack has its axes without channels, and is an OME-TIFF if its name ends in ``.ome.tif``.
    level : int, optional
        Read all images by region, at this level of their pyramids (0: the finest).
    resume : bool, default=False
        Make only what is missing or damaged, or whose image, model or settings have changed. Results that somebody
        else has changed are kept, and their images skipped.
    strict : bool, default=False
        Stop at the first image that fails. Otherwise the others are segmented.
    overwrite : bool, default=False
        Replace files that segkit wrote. Results of an earlier run that this one would leave beside new masks are
        refused even so.
    overwrite_foreign : bool, default=False
        Replace files that segkit did not write too, such as masks drawn by hand.
    n_jobs : int or Cluster, optional
        As for `Segmenter.fit`; each process takes an image at a time.
    progress : callable, optional
        As for `Segmenter.fit`.

    Returns
    -------
    list of Path
        The masks. Those of images that were skipped or failed are missing.

    Raises
    ------
    InputError
        If no image can be segmented, another program works in the output folder, or with `strict` an image failed.
    ConfigError
        If objects are asked of a model that does not know them.
    OutputError
        If results would lie among the images, replace something, or cannot be written. What was written stays, and
        `resume` goes on.

    Warns
    -----
    UserWarning
        If images failed or were skipped, are unlike the training images or of one class (see `ImageCheck`), or are read
        with other channels than their files have. If the brightest pixel is eight times darker, or brighter, than those
        of the training images.
    """
    with workers_of(n_jobs) as workers:
        outcome = segment_folder(
            segmenter,
            images,
            output,
            probability=probability,
            overlay=overlay,
            objects=objects,
            pixel_size=pixel_size,
            axes=axes,
            level=level,
            resume=resume,
            strict=strict,
            overwrite=overwrite,
            overwrite_foreign=overwrite_foreign,
            workers=workers,
            progress=progress,
        )
    # two images whose results clash have one reason
    if not_written := list(dict.fromkeys(row.reason for row in outcome.rows if row.status != WRITTEN)):
        warnings.warn(f"{join_faults(not_written)}; {outcome.summarise()}", UserWarning, stacklevel=2)
    if doubts := outcome.summarise_warnings():
        warnings.warn("; ".join(doubts), UserWarning, stacklevel=2)
    return outcome.masks


def segment_folder(
    segmenter: BaseSegmenter,
    images: str | Path,
    output: str | Path,
    *,
    probability: bool = False,
    overlay: bool = False,
    objects: bool = False,
    pixel_size: float | tuple[float, float] | None = None,
    axes: str | None = None,
    level: int | None = None,
    resume: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    overwrite_foreign: bool = False,
    corrections: Corrections | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Segment every image of a folder as `predict_folder` does; return what came of each."""
    check_is_fitted(segmenter, "classes_")
    refuse_empty(output)
    images, output = Path(images), Path(output)
    refuse_nesting(images, output)
    given = None if pixel_size is None else check_pixel_size(pixel_size)
    kinds = [name for name, is_wanted in (("probability", probability), ("overlay", overlay)) if is_wanted]
    if objects:
        kinds += _kinds_of_objects(segmenter)
    follow = progress or pass_on
    reading = reading_of(segmenter, axes)
    jobs, found = jobs_of(segmenter, images, level)
    is_folder = images.is_dir() and not is_by_region(images)
    clashes = _clashes(jobs, output)
    made = [job for job in jobs if job.name not in clashes]
    masks = [mask for job in made for mask in job.possible_masks(segmenter.classes_.dtype)]
    possible = {kind: [place for job in made for place in job.possible_places(kind)] for kind in KINDS}
    results = [*masks, *(place for kind in kinds for place in possible[kind])]
    others = [place for kind in KINDS if kind not in kinds for place in possible[kind]]
    folders = {job.source.parent for job in jobs} if is_folder else set()
    _refuse_among_images([output / place for place in results], images, [*found.linked, *folders])
    tables = [*(TABLES if objects else ()), SUMMARY]
    allowed = Permissions(resume, overwrite, overwrite_foreign)
    with results_in(
        output, results, tables, allowed, others=[*others, *(() if objects else TABLES)]
    ) as record:
        names = {job.name for job in jobs}
        rows = [] if is_folder else rows_of_others(record, names)
        made_by = _digest_run(segmenter, kinds, given, axes, level)
        notes = [*found.notes, *notes_on_others(record, rows, made_by)]
        make = partial(
            make_results,
            segmenter,
            folder=record.staging,
            kinds=kinds,
            pixel_size=given,
            reading=reading,
            corrections=corrections,
            follow=LocalProgress(follow),
        )
        workers = workers or one_by_one
        make_slide = partial(
            make_by_region,
            segmenter,
            record=record,
            kinds=kinds,
            pixel_size=given,
            axes=axes,
            resume=resume,
            workers=workers,
            follow=follow,
        )
        run = _FolderRun(
            segmenter, jobs, clashes, record, rows, made_by, resume, strict, objects, follow, corrections
        )
        outcome = run.run(make, make_slide, workers)
        if outcome.masks:
            _note_classes(output / HIDDEN / CLASSES, segmenter.label_map_)
        if corrections is not None and not run.n_corrected:
            notes.append("no image has labels in the project that was given for corrections")
        if is_folder:
            notes += notes_on_removed(record, names)
        n_channels = int(segmenter.n_image_channels_) // reading.n_planes
        root = images if is_folder else images.parent
        notes += notes_on_images(segmenter, run.looks, root, reading.channels, n_channels)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)
    return outcome


def _note_classes(path: Path, label_map: LabelMap) -> None:
    """Write the names of the values of masks, for `segkit evaluate`; what is the same stays untouched."""
    text = json.dumps(label_map.to_dict())
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text)


def jobs_of(
    segmenter: BaseSegmenter, images: Path, level: int | None = None
) -> tuple[list[Job], FoundImages]:
    """List images, each with the level that it is read at if it is read by region, and tell how they were found."""
    found = find_images(images, with_slides=True)
    root = images.parent if is_by_region(images) else root_of(images)
    jobs = []
    for place in found.paths:
        by_region = level is not None or is_by_region(place) or _is_large(segmenter, root / place)
        jobs.append(Job(root / place, place.as_posix(), (level or 0) if by_region else None))
    return jobs, found


def _is_large(segmenter: BaseSegmenter, path: Path) -> bool:
    return isinstance(segmenter, Segmenter) and is_large(path, segmenter.bank_, segmenter.classes_.size)


def reading_of(segmenter: BaseSegmenter, axes: str | None = None) -> Reading:
    """Return how the training images of a segmenter were read, with other axes if they are given."""
    reading: Reading = getattr(segmenter, "reading_", None) or Reading()
    return reading if axes is None else replace(reading, axes=axes)


@dataclass(eq=False)
class _FolderRun:
    """A run over images, in a folder whose record is open."""

    segmenter: BaseSegmenter
    jobs: Sequence[Job]
    clashes: Mapping[str, str]
    record: Record
    others: Sequence[ImageRow]
    made_by: str
    resume: bool
    strict: bool
    has_tables: bool
    follow: Progress
    corrections: Corrections | None = None
    looks: dict[str, Appearance] = field(default_factory=dict)
    n_kept: int = 0
    n_corrected: int = 0
    _row_of: dict[str, ImageRow] = field(default_factory=dict)
    _source_of: dict[str, str] = field(default_factory=dict)
    _tables_are_true: bool = True

    def run(
        self, make: Callable[[Job], Made], make_slide: Callable[[Job], Made], workers: Workers
    ) -> Outcome:
        """Segment the images, and write tables and summary, which is written too if the run stops early.

        Workers take whole images, or the tiles of one that is read by region: these come first.
        """
        try:
            for job in self._to_make([job for job in self.jobs if job.level is not None]):
                self._note(job, partial(self._put, job, partial(make_slide, job)))
            whole = [job for job in self.jobs if job.level is None]
            with closing(workers(make, self._to_make(whole))) as made:
                for job, result in made:
                    self._note(job, partial(self._put, job, result))
            if all(row.status == FAILED and not row.mask for row in self.rows):
                raise InputError(join_faults(list(dict.fromkeys(row.reason for row in self.rows))))
            if self.has_tables:
                self._write_tables()
        except BaseException as stop:
            if self._n_written:
                for left in self.jobs:
                    not_reached = ImageRow(left.name, SKIPPED, "not reached: the run was stopped")
                    self._row_of.setdefault(left.name, not_reached)
                with contextlib.suppress(OutputError):  # the first error counts
                    self._write_summary()
            if isinstance(stop, KeyboardInterrupt):
                raise Interrupted(self._n_written, len(self.jobs)) from stop
            raise
        self._write_summary()
        return Outcome(self.record.output, self.rows, self.n_kept)

    @property
    def rows(self) -> list[ImageRow]:
        """Rows of the images whose status is known, in the order of the listing."""
        return [self._row_of[job.name] for job in self.jobs if job.name in self._row_of]

    @property
    def _n_written(self) -> int:
        return sum(row.status == WRITTEN for row in self.rows)

    @property
    def _all_rows(self) -> list[ImageRow]:
        """Rows of the tables, in the order of a listing of the folder."""
        # the mask of another image may be one of this run now
        return in_order([*self.rows, *(row for row in self.others if row.image in self.record.entries)])

    @property
    def _done(self) -> str:
        return f"{self._n_written} of {count(len(self.jobs), 'image')} written"

    def _to_make(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Return the images that are to be segmented, and note of the others what came of them."""
        for job in self.follow(jobs, "Segmenting") if jobs else ():  # no bar of nothing
            if not self._note(job, partial(self._look, job)):
                yield job

    def _note(self, job: Job, act: Callable[[], ImageRow | None]) -> bool:
        """Do something about an image, and tell whether its row is known then; a fault of the disk ends the run."""
        try:
            row = act()
        except ForeignFileError as error:
            row = ImageRow(job.name, SKIPPED, f"{error}: it is kept (--overwrite-foreign replaces it)")
        except OutputError as error:
            mask = self.record.output / job.mask
            if _is_of_the_disk(error):
                raise self._stopped(mask, error) from error
            row = self._failed(job.name, _named(mask, error), error)
        except Exception as error:  # whatever a library raises for an odd image, the others are segmented
            row = self._failed(job.name, reason_of(error, job.source), error)
        if row is None:
            return False
        self._row_of[job.name] = row
        return True

    def _look(self, job: Job) -> ImageRow | None:
        """Return the row of an image that is done; None if it is to be segmented."""
        if job.name in self.clashes:
            raise InputError(self.clashes[job.name])
        entry = self.record.entries.get(job.name)
        self.record.refuse_foreign([job.mask, *map(Path, () if entry is None else entry.outputs)])
        # before the image is read: if it is replaced meanwhile, the next run takes it for changed
        by_region = job.level is not None
        source = digest_values(stats_of(job.source)) if by_region else digest_file(job.source)
        if self.corrections is not None and (digest := self.corrections.digest(job)):
            if by_region:
                raise InputError(
                    f"{job.source} is read by region, where labels are not taken over: segment it without corrections"
                )
            source = digest_values({"image": source, "labels": digest})
            self.n_corrected += 1
        self._source_of[job.name] = source
        if by_region:
            self._refuse_clash(job, [job.mask])  # not after hours
        if not (self.resume and self.record.is_done(job.name, source=source, made_by=self.made_by)):
            return None
        row = row_of(self.record.entries[job.name])
        look = Appearance.from_list(self.record.entries[job.name].row.get("appearance"))
        if row.status != WRITTEN or (look is None and not by_region):
            return None
        if look is not None:
            self.looks[job.name] = look  # a run that was stopped has told nobody
        self.n_kept += 1
        return row

    def _put(self, job: Job, result: Callable[[], Made]) -> ImageRow:
        """Put the results of an image into their places, once they are made."""
        made = result()
        self._refuse_clash(job, made.places)
        columns: dict[str, Any] = {
            name: round(value, _DIGITS) if isinstance(value, float) else value
            for name, value in made.columns.items()
        }
        status = FAILED if made.fault else WRITTEN
        row = ImageRow(job.name, status, made.fault, made.places[-1].as_posix(), **columns)
        self._withdraw_tables()
        source = self._source_of[job.name]
        look = made.appearance
        noted = asdict(row) | ({} if look is None else {"appearance": look.to_list()})
        self.record.put(job.name, made.places, source=source, made_by=self.made_by, row=noted)
        if look is not None:
            self.looks[job.name] = look
        if made.fault and self.strict:
            self._row_of[job.name] = row
            raise InputError(made.fault)
        return row

    def _refuse_clash(self, job: Job, places: Sequence[Path]) -> None:
        """Refuse to take places of the results of another image that is there too."""
        for place in places:
            other = self.record.owner_of.get(place.as_posix(), job.name)
            if other != job.name and self._keeps(other, job):
                raise InputError(_clash(job.name, other, self.record.output / place))

    def _keeps(self, other: str, job: Job) -> bool:
        """Return whether the results of another image stay in their places: it is there too."""
        if any(other == present.name for present in self.jobs):
            return True
        root = job.source.parents[len(Path(job.name).parts) - 1]
        return self.resume and other in self.record.entries and (root / other).exists()

    def _failed(self, name: str, reason: str, error: Exception | None = None) -> ImageRow:
        if self.strict:
            raise InputError(f"{reason} (strict: {self._done})") from error
        entry = self.record.entries.get(name)
        if (
            entry is not None
            and (mask := entry.row.get("mask"))
            and os.path.lexists(self.record.output / mask)
        ):
            other = "" if entry.made_by == self.made_by else ", of another model or other options"
            reason += f"; its mask of an earlier run{other}, {mask}, is left as it was"
        return ImageRow(name, FAILED, reason)

    def _stopped(self, path: Path, error: OutputError) -> OutputError:
        """Make the error of a run that stops here, for a fault that is no image's."""
        return OutputError(f"{_named(path, error)} ({self._done}; then --resume goes on)")

    def _withdraw_tables(self) -> None:
        """Remove the tables of an earlier run, which would be of other masks if this one were interrupted."""
        if self._tables_are_true:
            for table in (*TABLES, SUMMARY):
                self.record.withdraw(table)
            self._tables_are_true = False

    def _write_tables(self) -> None:
        staging, (objects, images) = self.record.staging, TABLES
        with self._naming(objects), without_sync():
            summaries = write_objects(staging / objects, self._measured())
            names, interval = self.segmenter.label_map_.names[1:], self.segmenter.objects_.count_interval
            write_images(staging / images, summaries, classes=names, interval=interval)
        with self._naming(objects):
            self.record.refuse_changed(TABLES)
            self.record.put("tables", TABLES)

    def _measured(self) -> Iterator[ImageObjects]:
        """Return the measurements of the written images, one after the other."""
        for row in self._all_rows:
            place = measured_place(row.image)
            if row.status == WRITTEN and place.as_posix() in self.record.entries[row.image].outputs:
                yield from read_measured(self.record.output / place, row)

    def _write_summary(self) -> None:
        with self._naming(SUMMARY):
            self.record.refuse_changed([SUMMARY])
            put_summary(self.record, self._all_rows)

    @contextlib.contextmanager
    def _naming(self, table: Path) -> Iterator[None]:
        """Explain a fault of the disk by the name of a table."""
        try:
            yield
        except OutputError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            raise self._stopped(self.record.output / table, error) from error


def _clashes(jobs: Sequence[Job], output: Path) -> dict[str, str]:
    """Return the images whose results would lie on those of others, and why they fail; two that clash fail both."""
    reasons: dict[str, str] = {}
    of_stem = defaultdict(list)
    taken = {place for job in jobs for place in (job.mask, job.mask.with_suffix(".tif"))}
    taken |= {Path(kind) for kind in KINDS} | {*TABLES, SUMMARY}
    for job in jobs:
        # the folder of images itself is the last one
        for folder, above in zip(job.source.parents, [*Path(job.name).parents][:-1], strict=False):
            if above in taken:
                called = f"{folder} is a folder called {above.name}, as results are"
                reasons[job.name] = f"{called}: rename that folder"
        if job.name not in reasons:
            # a mask may be a TIFF file in place of a PNG
            of_stem[job.mask.with_suffix(".png") if job.mask.suffix == ".tif" else job.mask].append(job)
    for mask, (first_job, *others) in of_stem.items():
        for other in others:
            reason = _clash(str(first_job.source), str(other.source), output / mask)
            reasons.setdefault(first_job.name, reason)
            reasons[other.name] = reason
    return reasons


def _clash(first: str, second: str, place: Path) -> str:
    return f"{first} and {second} would both become {place}: rename one"


def _refuse_among_images(places: Sequence[Path], images: Path, linked: Sequence[Path]) -> None:
    """Refuse an output folder from which a result would reach the folder of images: the next run would segment it."""
    inside = images.resolve()
    folders = [folder for folder in (images, *linked) if folder.is_dir()]
    among = set(find_within({path.parent for path in places}, folders))
    faults = [path for path in places if path.parent in among]
    # a link in the place of a result is replaced, one in the place of its folder is followed
    if any(path.name == inside.name and is_same(path.parent, inside.parent) for path in places):
        raise InputError(f"a result would take the place of {images}: choose an output folder elsewhere")
    if faults:
        raise InputError(f"{named(faults)} would be among the images: choose an output folder elsewhere")


def _named(path: Path, error: OutputError) -> str:
    """Explain why a file cannot be written, by its own name in place of the staged file's."""
    return (
        f"{path}: {describe_os_error(error.__cause__)}"
        if isinstance(error.__cause__, OSError)
        else str(error)
    )


def _is_of_the_disk(error: OutputError) -> bool:
    """Return whether nothing could be written, whatever the image: its name alone may be too long."""
    cause = error.__cause__
    of_the_name = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR)
    return isinstance(cause, OSError) and cause.errno not in of_the_name


def _digest_run(
    segmenter: BaseSegmenter,
    kinds: Sequence[str],
    pixel_size: PixelSize | None,
    axes: str | None,
    level: int | None,
) -> str:
    """Return a digest of all that the results of an image depend on, but for the image."""
    model = digest_model(segmenter) if isinstance(segmenter, Segmenter) else str(joblib.hash(segmenter))
    values = {"segkit": code_version(), "model": model, "kinds": sorted(kinds), "pixel_size": pixel_size}
    given = {"axes": axes, "level": level}
    return digest_values(values | {name: value for name, value in given.items() if value is not None})


def _kinds_of_objects(segmenter: BaseSegmenter) -> list[str]:
    """Return the kinds of results of objects, once the model is known to tell them apart."""
    if not hasattr(segmenter, "objects_"):
        raise ConfigError(
            "the model knows no objects, for it is no Segmenter: measure its masks by segkit measure"
        )
    if find_spec("roifile") is None:
        warnings.warn(
            'no regions for ImageJ are written, for roifile is missing: pip install "segkit-bio[objects]"',
            UserWarning,
            stacklevel=4,
        )
        return [name for name in _OF_OBJECTS if name != "rois"]
    return list(_OF_OBJECTS)
