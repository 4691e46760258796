"""Status of each image of a folder: written, skipped or failed, and why; the table summary.csv."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean

from segkit._common.files import without_sync, write_table
from segkit.errors import ClusterError, SegkitError, count
from segkit.images.record import Entry, Record
from segkit.objects.tables import IMAGES_FILE, OBJECTS_FILE

SUMMARY = Path("summary.csv")
TABLES = [Path(OBJECTS_FILE), Path(IMAGES_FILE)]
WRITTEN, SKIPPED, FAILED = "written", "skipped", "failed"
# Folders of results beside the masks, the kind of file in each, and whether each page of a file has its own.
KINDS = {
    "probability": (".tif", False),
    "overlay": (".png", True),
    "objects": (".tif", False),
    "geojson": (".geojson", True),
    "rois": (".zip", True),
}
_N_NAMED = 3
_N_FAULTS = 5


@dataclass(frozen=True)
class ImageRow:
    """A row of summary.csv; its fields are the columns."""

    image: str
    status: str
    reason: str = ""
    mask: str = ""
    height: int | None = None
    width: int | None = None
    pages: int | None = None
    expected_object_iou: float | None = None
    low_80: float | None = None
    high_80: float | None = None
    low_90: float | None = None
    high_90: float | None = None
    expected_mean_iou: float | None = None
    distance: float | None = None
    warning: str = ""
    tiles: int | None = None
    seconds: float | None = None
    shares: str = ""


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

    output: Path
    rows: list[ImageRow]
    n_kept: int = 0

    @property
    def masks(self) -> list[Path]:
        """Masks of the written images."""
        return [self.output / row.mask for row in self.rows if row.status == WRITTEN]

    @property
    def skipped(self) -> list[ImageRow]:
        """Rows of the images that were skipped."""
        return [row for row in self.rows if row.status == SKIPPED]

    @property
    def failed(self) -> list[ImageRow]:
        """Rows of the images that failed."""
        return [row for row in self.rows if row.status == FAILED]

    @property
    def warned(self) -> list[ImageRow]:
        """Rows of the images with a warning."""
        return [row for row in self.rows if row.warning]

    def summarise_warnings(self) -> list[str]:
        """Name the first images with a warning, each with its warning, and say how many more there are."""
        told = [f"{row.image}: {row.warning}" for row in self.warned[:_N_NAMED]]
        n_more = len(self.warned) - len(told)
        more = f"warnings of {count(n_more, 'more image')}: {self._table}"
        return [*told, *([more] if n_more else [])]

    def summarise_expected(self) -> str | None:
        """Summarise the expected scores of images without a warning, mean and lowest object IoU first; None without any."""
        rows = [row for row in self.rows if not row.warning]
        known = {row.image: row.expected_object_iou for row in rows if row.expected_object_iou is not None}
        means = [row.expected_mean_iou for row in rows if row.expected_mean_iou is not None]
        if not means:
            return None
        known_of, means_of = (
            f" of {count(len(of), 'image')} without a warning" if self.warned else "" for of in (known, means)
        )
        mean = f"mean IoU with background {fmean(means):.2f}"
        if not known:
            return f"Expected {mean}{means_of}; no objects were found"
        worst = min(known, key=known.__getitem__)
        lowest = f" on average, lowest {known[worst]:.2f} ({worst})" if len(known) > 1 else ""
        return f"Expected object IoU{known_of}: {fmean(known.values()):.2f}{lowest}; {mean}"

    def summarise(self) -> str:
        """Count in one line the images that were written, skipped and failed."""
        numbers = f"{len(self.masks)} written, {len(self.skipped)} skipped, {len(self.failed)} failed"
        kept = f" ({count(self.n_kept, 'image')} up to date)" if self.n_kept else ""
        return f"{numbers}{kept}: {self._table}"

    @property
    def _table(self) -> str:
        return f"see {self.output / SUMMARY}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of a run."""

    def __init__(self, n_written: int, n_images: int) -> None:
        self.n_written, self.n_images = n_written, n_images
        super().__init__(f"{n_written} of {count(n_images, 'image')} written; resume=True goes on")


def rows_of_others(record: Record, seen: Collection[str]) -> list[ImageRow]:
    """Return the rows of earlier images that a run does not see, and whose masks are there."""
    rows = []
    for name, entry in record.entries.items():
        mask = entry.row.get("mask")
        if name in seen or not mask or not os.path.lexists(record.output / mask):
            continue
        if record.is_whole(name):
            rows.append(row_of(entry))
        else:
            reason = f"{record.output / mask} or another of its results is not as segkit wrote it"
            rows.append(ImageRow(name, SKIPPED, reason))
    return rows


def row_of(entry: Entry) -> ImageRow:
    """Return the row that an entry of the record holds; another version of segkit may have recorded other columns."""
    columns = {field.name for field in fields(ImageRow)}
    known = {key: value for key, value in entry.row.items() if key in columns}
    return ImageRow(**{"image": entry.name, "status": WRITTEN} | known)


def in_order(rows: Iterable[ImageRow]) -> list[ImageRow]:
    """Return rows in the order of a listing of the folder."""
    return sorted(rows, key=lambda row: Path(row.image))


def put_summary(record: Record, rows: Sequence[ImageRow]) -> None:
    """Write summary.csv."""
    header = [field.name for field in fields(ImageRow)]
    with without_sync():
        write_table(record.staging / SUMMARY, header, [tuple(asdict(row).values()) for row in rows])
    record.put("summary", [SUMMARY])


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


def join_faults(faults: Sequence[str]) -> str:
    """List the first faults, and count the others."""
    more = f"; and {len(faults) - _N_FAULTS} more" if len(faults) > _N_FAULTS else ""
    return "; ".join(faults[:_N_FAULTS]) + more
