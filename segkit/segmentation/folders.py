"""Folders of images segmented into folders of masks."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
from sklearn.utils.validation import check_is_fitted

from segkit import __version__
from segkit._common import LocalProgress, Progress, Workers, count, first_few, one_by_one, pass_on
from segkit._files import without_sync
from segkit._files.write import describe_os_error
from segkit.errors import ConfigError, InputError, OutputError
from segkit.images import PixelSize
from segkit.images.outputs import (
    named,
    refuse_empty,
    refuse_existing,
    refuse_foreign,
    refuse_nesting,
    refuse_unwritable,
)
from segkit.images.pixel_size import check_pixel_size
from segkit.objects.tables import IMAGES_FILE, OBJECTS_FILE, ImageObjects, write_images, write_objects
from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.model_file import describe, digest_arrays
from segkit.segmentation.outcome import (
    FAILED,
    SKIPPED,
    SUMMARY,
    WRITTEN,
    ImageRow,
    Interrupted,
    Outcome,
    in_order,
    is_of_region,
    put_summary,
    refuse_changed,
    rows_of_others,
    table_of_others,
)
from segkit.segmentation.plan import (
    Fault,
    Job,
    Plan,
    join_faults,
    make_plan,
    measured_place,
    reading_of,
    reason_of,
)
from segkit.segmentation.record import HIDDEN, ForeignFileError, Record, digest_file, digest_values, record_of
from segkit.segmentation.results import Columns, make_results, read_measured
from segkit.segmentation.segmenter import Segmenter

_OF_OBJECTS = ("objects", "geojson", "rois")
_TABLES = [Path(OBJECTS_FILE), Path(IMAGES_FILE)]
_DIGITS = 4
_CURE = (
    "choose another folder, go on with what is there (--resume, in Python resume=True), or replace it (--overwrite, "
    "overwrite=True)"
)


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
    resume: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    overwrite_foreign: bool = False,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Segment every image of a folder.

    Parameters
    ----------
    segmenter : BaseSegmenter
        Fitted.
    images : str or Path
        Folder of images (sub-folders too), or one image.
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
    workers : callable, optional
        Spreads the images over processes and machines, such as `segkit.scale.Cluster.spread`; by default they are
        segmented here, one by one.
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
    outcome = segment_folder(
        segmenter,
        images,
        output,
        probability=probability,
        overlay=overlay,
        objects=objects,
        pixel_size=pixel_size,
        axes=axes,
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
    resume: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    overwrite_foreign: bool = False,
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
    reading = reading_of(segmenter) if axes is None else replace(reading_of(segmenter), axes=axes)
    plan = make_plan(segmenter, images, output, kinds, follow, reading)
    if plan.faults and (strict or not plan.fit):
        raise InputError(join_faults(plan.faults))
    tables = _TABLES if objects else []
    results = [*(place for job in plan.fit for place in job.outputs), *tables, SUMMARY]
    for place in (*results, HIDDEN / "lock"):
        refuse_unwritable(output / place, within=output)
    with record_of(output, results, replaces_foreign=overwrite_foreign) as record:
        refuse_existing(
            [output / place for place in results if place.parts[0] != HIDDEN.name],
            overwrite=resume or overwrite or overwrite_foreign,
            cure=_CURE,
        )
        left = [place for job in plan.fit for place in job.others] + ([] if objects else _TABLES)
        _refuse_leftovers(output, [place for place in left if os.path.lexists(output / place)])
        if resume:
            refuse_changed(record, [*tables, SUMMARY])
        else:
            refuse_foreign(
                [output / place for place in results],
                is_own=lambda path: record.is_own(path.relative_to(output)),
                allowed=overwrite_foreign,
            )
        seen = {job.name for job in plan.jobs}
        others = rows_of_others(record, seen, by_region=not images.is_file())
        made_by = _digest_run(segmenter, kinds, given, axes)
        about_others = (
            _notes_on_others(record, others, made_by) if images.is_file() else _notes_on_removed(record, plan)
        )
        for note in [*plan.notes, *about_others]:
            warnings.warn(note, UserWarning, stacklevel=3)
        make = partial(
            make_results,
            segmenter,
            folder=record.staging,
            pixel_size=given,
            reading=reading,
            follow=LocalProgress(follow),
        )
        run = _FolderRun(segmenter, plan, record, tables, others, made_by, resume, strict, follow)
        return run.run(make, workers or one_by_one)


@dataclass(eq=False)
class _FolderRun:
    """A run over the images of a plan, in a folder whose record is open."""

    segmenter: BaseSegmenter
    plan: Plan
    record: Record
    tables: Sequence[Path]
    others: Sequence[ImageRow]
    made_by: str
    resume: bool
    strict: bool
    follow: Progress
    n_kept: int = 0
    _row_of: dict[str, ImageRow] = field(default_factory=dict)
    _source_of: dict[str, str] = field(default_factory=dict)
    _tables_are_true: bool = True

    def run(self, make: Callable[[Job], Columns], workers: Workers) -> Outcome:
        """Segment the images, and write tables and summary, which is written too if the run stops early."""
        try:
            with closing(workers(make, self._to_make())) as made:
                for job, result in made:
                    self._note(job, partial(self._put, job, result))
            if self.tables:
                self._write_tables()
        except BaseException as stop:
            for left in self.plan.jobs:
                not_reached = ImageRow(left.name, SKIPPED, "not reached: the run was stopped")
                self._row_of.setdefault(left.name, not_reached)
            with contextlib.suppress(OutputError):  # the first error counts
                self._write_summary()
            if isinstance(stop, KeyboardInterrupt):
                raise Interrupted(self._n_written, len(self.rows)) from stop
            raise
        self._write_summary()
        return Outcome(self.record.output, self.rows, self.n_kept)

    @property
    def rows(self) -> list[ImageRow]:
        """Rows of the images whose status is known, in the order of the plan."""
        return [self._row_of[job.name] for job in self.plan.jobs if job.name in self._row_of]

    @property
    def _n_written(self) -> int:
        return sum(row.status == WRITTEN for row in self.rows)

    @property
    def _all_rows(self) -> list[ImageRow]:
        """Rows of the tables, in the order of a listing of the folder."""
        return in_order([*self.rows, *self.others])

    @property
    def _done(self) -> str:
        return f"{self._n_written} of {count(len(self.plan.jobs), 'image')} written"

    def _to_make(self) -> Iterator[Job]:
        """Return the images that are to be segmented, and note of the others what came of them."""
        for job in self.follow(self.plan.jobs, "Segmenting"):
            if isinstance(job, Fault):
                self._row_of[job.name] = self._failed(job.name, job.reason)
            elif not self._note(job, partial(self._look, job)):
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
        self.record.refuse_foreign(job.outputs)
        # before the image is read: if it is replaced meanwhile, the next run takes it for changed
        source = self._source_of[job.name] = digest_file(job.source)
        if not (self.resume and self.record.is_done(job.name, source=source, made_by=self.made_by)):
            return None
        self.n_kept += 1
        return ImageRow(**self.record.entries[job.name].row)

    def _put(self, job: Job, result: Callable[[], Columns]) -> ImageRow:
        """Put the results of an image into their places, once they are made."""
        columns: dict[str, Any] = {
            name: round(value, _DIGITS) if isinstance(value, float) else value
            for name, value in result().items()
        }
        height, width, _ = job.shapes[0]
        row = ImageRow(job.name, WRITTEN, "", job.mask.as_posix(), height, width, len(job.shapes), **columns)
        self._withdraw_tables()
        source = self._source_of[job.name]
        self.record.put(job.name, job.outputs, source=source, made_by=self.made_by, row=asdict(row))
        return row

    def _failed(self, name: str, reason: str, error: Exception | None = None) -> ImageRow:
        if self.strict:
            raise InputError(f"{reason} (strict: {self._done})") from error
        entry = self.record.entries.get(name)
        if entry is not None and (mask := entry.row.get("mask")) and (self.record.output / mask).exists():
            other = "" if entry.made_by == self.made_by else ", of another model or other options"
            reason += f"; its mask of an earlier run{other}, {mask}, is left as it was"
        return ImageRow(name, FAILED, reason)

    def _stopped(self, path: Path, error: OutputError) -> OutputError:
        """Make the error of a run that stops here, for a fault that is no image's."""
        return OutputError(f"{_named(path, error)} ({self._done}; then --resume goes on)")

    def _withdraw_tables(self) -> None:
        """Remove the tables of an earlier run, which would be of other masks if this one were interrupted."""
        if self._tables_are_true:
            for table in (*_TABLES, SUMMARY):
                self.record.withdraw(table)
            self._tables_are_true = False

    def _write_tables(self) -> None:
        staging, (objects, images) = self.record.staging, self.tables
        try:
            with without_sync():
                summaries = write_objects(staging / objects, self._measured())
                write_images(staging / images, summaries, classes=self.segmenter.label_map_.names[1:])
            self.record.put("tables", self.tables)
        except ForeignFileError as error:
            raise table_of_others(error) from error
        except OutputError as error:
            raise self._stopped(self.record.output / objects, error) from error

    def _measured(self) -> Iterator[ImageObjects]:
        """Return the measurements of the written images, one after the other."""
        for row in self._all_rows:
            place = measured_place(row.image)
            if row.status == WRITTEN and place.as_posix() in self.record.entries[row.image].outputs:
                yield from read_measured(self.record.output / place, row)

    def _write_summary(self) -> None:
        try:
            put_summary(self.record, self._all_rows)
        except ForeignFileError as error:
            raise table_of_others(error) from error
        except OutputError as error:
            raise self._stopped(self.record.output / SUMMARY, error) from error


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
    return isinstance(cause, OSError) and cause.errno != errno.ENAMETOOLONG


def _digest_run(
    segmenter: BaseSegmenter, kinds: Sequence[str], pixel_size: PixelSize | None, axes: str | None
) -> str:
    """Return a digest of all that the results of an image depend on, but for the image."""
    if isinstance(segmenter, Segmenter):  # versions of packages are part of it
        header, arrays = describe(segmenter, embed_weights=False)
        model = digest_values(header | {"arrays": digest_arrays(arrays)})
    else:
        model = str(joblib.hash(segmenter))
    values = {"segkit": __version__, "model": model, "kinds": sorted(kinds), "pixel_size": pixel_size}
    return digest_values(values if axes is None else values | {"axes": axes})


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


def _refuse_leftovers(output: Path, places: Sequence[Path]) -> None:
    """Refuse to leave results of an earlier run beside new masks."""
    if places:
        tops = list(dict.fromkeys(place.parts[0] for place in places))
        options = list(dict.fromkeys(top if top in ("probability", "overlay") else "objects" for top in tops))
        raise OutputError(
            f"{named([output / place for place in places])} of an earlier run would stay beside the new masks: write them "
            f"anew too ({' '.join(f'--{option}' for option in options)}; in Python "
            f"{', '.join(f'{option}=True' for option in options)}), choose another folder, or remove "
            f"{', '.join(str(output / top) for top in tops)} yourself"
        )


def _notes_on_others(record: Record, others: Sequence[ImageRow], made_by: str) -> list[str]:
    """Note earlier images whose rows stay in the tables although another model or other options made them."""
    odd = [row.image for row in others if row.tiles is None and record.entries[row.image].made_by != made_by]
    if not odd:
        return []
    return [
        f"results of {count(len(odd), 'other image')} in {record.output} are of another model or other options "
        f"({first_few(odd, most=3)}): give the folder of the images to make all anew"
    ]


def _notes_on_removed(record: Record, plan: Plan) -> list[str]:
    """Note images of an earlier run that are no longer there."""
    present = {job.name for job in plan.jobs}
    gone = sorted(
        name
        for name, entry in record.entries.items()
        if name not in present
        and not is_of_region(entry.row)
        and (mask := entry.row.get("mask"))
        and (record.output / mask).exists()
    )
    if not gone:
        return []
    verb, their = ("is", "its mask is") if len(gone) == 1 else ("are", "their masks are")
    return [
        f"{count(len(gone), 'image')} of an earlier run {verb} gone ({first_few(gone)}): {their} left alone"
    ]
