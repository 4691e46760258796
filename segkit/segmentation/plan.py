"""The results to write for each image of a folder, planned after a look at all images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segkit._common import FloatArray, Progress, count, first_few
from segkit.errors import ClusterError, InputError, SegkitError
from segkit.images import Reading, list_images
from segkit.images.alike import Kind, describe_changes, fits, kind_of, of_other_scale
from segkit.images.axes import Layout
from segkit.images.large_image import is_by_region
from segkit.images.reading import neighbours
from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.record import HIDDEN, key_of

_N_NAMED = 3
_N_FAULTS = 5
_LONGEST_NAME = 255  # bytes
# Folders of results beside the masks, the kind of file in each, and whether each page of a file has its own.
_KINDS = {
    "probability": (".tif", False),
    "overlay": (".png", True),
    "objects": (".tif", False),
    "geojson": (".geojson", True),
    "rois": (".zip", True),
}
EXTRAS = {name: extension for name, (extension, _) in _KINDS.items()}


@dataclass(frozen=True)
class Job:
    """An image file and the places of its results in the output folder."""

    source: Path
    name: str
    shapes: list[tuple[int, ...]]
    mask: Path
    extras: dict[str, tuple[Path, ...]]
    others: tuple[Path, ...]
    measured: Path | None
    layout: Layout

    @property
    def outputs(self) -> list[Path]:
        """All places, the mask last: where it is, the others are there."""
        hidden = [] if self.measured is None else [self.measured]
        return [*hidden, *(path for paths in self.extras.values() for path in paths), self.mask]


@dataclass(frozen=True)
class Fault:
    """An image that cannot be segmented, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """Plan of a run: images in the order of their listing, faults and notes."""

    jobs: list[Job | Fault]
    faults: list[str]
    notes: list[str]

    @property
    def fit(self) -> list[Job]:
        """The images that can be segmented."""
        return [job for job in self.jobs if isinstance(job, Job)]


def make_plan(
    segmenter: BaseSegmenter,
    images: Path,
    output: Path,
    kinds: Sequence[str],
    follow: Progress,
    reading: Reading,
) -> Plan:
    """Look at every image of a folder, and plan its results."""
    root = images if images.is_dir() else images.parent
    jobs: list[Job | Fault] = []
    unreadable: list[str] = []
    other_channels: dict[int, list[Path]] = {}
    looks: dict[str, Kind] = {}
    peaks: dict[Path, float] = {}
    unlike: dict[str, tuple[str, ...]] = {}
    n_wanted = n_channels_of(segmenter, reading)
    for relative in follow(list_images(images), "Looking at images"):
        source, name = root / relative, relative.as_posix()
        try:
            stack = reading.read(source)
            pages = [reading.scale(page, name=str(source)) for page in stack.pages]
            neighbours(stack.layout, 0, reading.context, name=str(source))
        except Exception as error:  # whatever is raised, the other images are segmented
            unreadable.append(reason_of(error, source))
            jobs.append(Fault(name, unreadable[-1]))
            continue
        if reason := misfit(source, pages, n_wanted):
            jobs.append(Fault(name, reason))
            n_channels = _other_channels(pages, n_wanted)
            if n_channels:
                other_channels.setdefault(n_channels, []).append(source)
            else:
                unreadable.append(reason)
            continue
        fits_png = len(pages) == 1 and segmenter.classes_.dtype in ("uint8", "uint16")
        job = _job(source, relative, [page.shape for page in pages], kinds, stack.layout, fits_png=fits_png)
        if any(len(os.fsencode(place.name)) > _LONGEST_NAME for place in (*job.outputs, *job.others)):
            unreadable.append(f"{source}: the names of its results would be too long: choose a shorter one")
            jobs.append(Fault(name, unreadable[-1]))
            continue
        looks[str(relative)] = kind_of(pages[0])
        peaks[source] = max(float(page.max()) for page in pages)
        if stack.layout.channels and stack.layout.channels != reading.channels:
            unlike[str(source)] = stack.layout.channels
        jobs.append(job)
    misfits = [_channels_fault(paths, n, n_wanted) for n, paths in other_channels.items()]
    plan = Plan(jobs, unreadable + misfits, [])
    _refuse_among_images(plan.fit, images, output)
    clashes = _clashes(plan.fit, root, output)
    plan.jobs[:] = [Fault(job.name, clashes[job.name]) if job.name in clashes else job for job in jobs]
    plan.faults.extend(dict.fromkeys(clashes.values()))
    plan.notes.extend(_notes_on_left_out(root) if images.is_dir() else ())
    plan.notes.extend(describe_changes(looks, n_wanted, like="the training images"))
    plan.notes.extend(_notes_on_names(unlike, reading.channels))
    plan.notes.extend(_notes_on_scale(peaks, getattr(getattr(segmenter, "summary_", None), "peaks", None)))
    return plan


def reading_of(segmenter: BaseSegmenter) -> Reading:
    """Return how the training images of a segmenter were read."""
    return getattr(segmenter, "reading_", None) or Reading()


def _notes_on_left_out(folder: Path) -> list[str]:
    """Note images that are read by region, which a folder is not searched for."""
    found = sorted(path.name for path in folder.iterdir() if is_by_region(path))
    if not found:
        return []
    verb, each = ("is", "it") if len(found) == 1 else ("are", "each")
    return [
        f"{count(len(found), 'image')} of {folder} {verb} left out ({first_few(found)}): give {each} by itself, to be read "
        "by region"
    ]


def n_channels_of(segmenter: BaseSegmenter, reading: Reading) -> int:
    """Count the channels of a plane of the images that a segmenter was trained on."""
    return int(segmenter.n_image_channels_) // reading.n_planes


def misfit(source: Path, pages: Sequence[FloatArray], n_channels: int) -> str | None:
    """Explain why pages that can be read cannot be segmented."""
    if other := _other_channels(pages, n_channels):
        return _channels_fault([source], other, n_channels)
    if len({page.shape for page in pages}) > 1:
        return f"{source} has pages of different sizes: save them as separate files"
    return None


def reason_of(error: Exception, source: Path) -> str:
    """Explain in one line why an image failed."""
    text = " ".join(str(error).split())
    if isinstance(error, ClusterError):
        return f"{source}: {text}"
    if isinstance(error, SegkitError):
        return text
    if isinstance(error, MemoryError):
        return f"{source}: out of memory: use smaller images, or a smaller bank"
    if isinstance(error, OSError):
        return f"{source}: {error.strerror or text}: check the file and its permissions"
    return f"{source}: cannot be segmented ({text or type(error).__name__}): leave it out"


def measured_place(name: str) -> Path:
    """Return the hidden place of the measurements of the objects of an image."""
    return HIDDEN / "objects" / f"{key_of(name)}.npz"


def join_faults(faults: Sequence[str]) -> str:
    """List the first faults, and count the others."""
    more = f"; and {len(faults) - _N_FAULTS} more" if len(faults) > _N_FAULTS else ""
    return "; ".join(faults[:_N_FAULTS]) + more


def _job(
    source: Path,
    relative: Path,
    shapes: list[tuple[int, ...]],
    kinds: Sequence[str],
    layout: Layout,
    *,
    fits_png: bool,
) -> Job:
    places = {
        name: _page_paths((name / relative).with_suffix(extension), len(shapes) if each else 1)
        for name, (extension, each) in _KINDS.items()
    }
    name = relative.as_posix()
    return Job(
        source,
        name,
        shapes,
        relative.with_suffix(".png" if fits_png else ".tif"),
        {kind: paths for kind, paths in places.items() if kind in kinds},
        tuple(path for kind, paths in places.items() if kind not in kinds for path in paths),
        measured_place(name) if "objects" in kinds else None,
        layout,
    )


def _refuse_among_images(jobs: Sequence[Job], images: Path, output: Path) -> None:
    """Refuse an output folder from which a result would reach the folder of images: the next run would segment it."""
    if not images.is_dir():
        return
    inside = images.resolve()
    places = [output / place for job in jobs for place in job.outputs]
    faults = [
        f"{path} would be among the images: choose an output folder elsewhere"
        for path in places
        if inside in path.resolve().parents
    ]
    if faults:
        raise InputError(join_faults(faults))


def _clashes(jobs: Sequence[Job], root: Path, output: Path) -> dict[str, str]:
    """Return the images whose results would lie on those of others, and why they fail; two that clash fail both."""
    reasons: dict[str, str] = {}
    taken: dict[Path, Job] = {}
    for job in jobs:
        first, *rest = Path(job.name).parts
        if rest and first in EXTRAS:
            reasons[job.name] = (
                f"{root / first} is a folder called {first}, as results are: rename that folder"
            )
            continue
        for place in job.outputs:
            other = taken.setdefault(place, job)
            if other is not job:
                reason = f"{job.source} and {other.source} would both become {output / place}: rename one"
                reasons.setdefault(job.name, reason)
                reasons.setdefault(other.name, reason)
    for place, job in taken.items():
        for folder in set(place.parents) & taken.keys():
            reasons.setdefault(
                taken[folder].name,
                f"{taken[folder].source} would become {output / folder}, a folder for {job.source}: rename one",
            )
    return reasons


def _other_channels(pages: Sequence[FloatArray], n_channels: int) -> int:
    """Return the number of channels of pages that do not fit the model; 0 if they do."""
    kinds = [kind_of(page) for page in pages]
    fit = all(fits(kind, n_channels) for kind in kinds)
    return 0 if fit else max(kind.n_channels for kind in kinds)


def _channels_fault(sources: Sequence[Path], n_channels: int, trained_on: int) -> str:
    """Explain that files, the first of them by name, have other channels than the training images."""
    if len(sources) == 1:
        who, them = f"{sources[0]} has", "it"
    else:
        names = [str(source) for source in sources[:_N_NAMED]]
        more = [f"and {len(sources) - _N_NAMED} more"] if len(sources) > _N_NAMED else []
        who, them = f"{count(len(sources), 'file')} ({', '.join([*names, *more])}) have", "them"
    return (
        f"{who} {count(n_channels, 'channel')}, the model was trained on {trained_on}: "
        f"save {them} as the training images are"
    )


def _notes_on_names(unlike: Mapping[str, tuple[str, ...]], trained: tuple[str, ...]) -> list[str]:
    """Note images whose channels have other names than those of the training images."""
    if not unlike or not trained:
        return []
    first, names = next(iter(unlike.items()))
    return [
        f"{first}: channels {', '.join(names)}, of the training images {', '.join(trained)} "
        f"({count(len(unlike), 'such image')}): the first is read as the first, and so on: right if only the names differ"
    ]


def _notes_on_scale(peaks: Mapping[Path, float], trained: Sequence[float] | None) -> list[str]:
    """Note images whose values are probably scaled otherwise than those of the training images."""
    if trained is None:
        return []
    low, high = trained
    odd = of_other_scale(peaks, low, high)
    if not odd:
        return []
    trained_at = " to ".join(dict.fromkeys(f"{peak:.1%}" for peak in trained))
    return [
        f"{odd[0]}: the brightest pixel is at {peaks[odd[0]]:.1%} of full scale, of the training images at "
        f"{trained_at} ({count(len(odd), 'such image')}): if values are scaled otherwise (16 bits are read as 0 to "
        "65535, 8 bits as 0 to 255), save them as the training images are"
    ]


def _page_paths(path: Path, n_pages: int) -> tuple[Path, ...]:
    """One picture, or one for each page: STEM-001.png, STEM-002.png, ..."""
    if n_pages == 1:
        return (path,)
    return tuple(path.with_stem(f"{path.stem}-{page + 1:03d}") for page in range(n_pages))
