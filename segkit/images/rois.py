"""Objects as ImageJ regions of interest: .roi files, and zip files of them."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segkit._common.memory import require_bytes
from segkit.errors import InputError, OutputError, count
from segkit.images.headers import HARMLESS_BYTES
from segkit.images.outlines import Outline, Outlines, check_label_image
from segkit.images.polygons import Polygon, Ring, trace
from segkit.images.write import save_as

_N_POINTS_OF_OVAL = 720
# Bytes of a file of a million points or more, and of memory for each of its bytes.
_LARGEST_ROI, _BYTES_OF_ROI = 2**24, 8
# ImageJ takes stored coordinates of more for negative ones.
_LARGEST_SIDE = 60_000


def outlines_from_rois(path: str | Path) -> Outlines:
    """Read the objects of a .roi file or a zip of them."""
    path = Path(path)
    roifile = _roifile(path)
    objects: list[Outline] = []
    left_out: Counter[str] = Counter()
    try:
        for content in _contents(path):
            roi = roifile.ImagejRoi.frombytes(content)
            rings = _rings(roi, roifile)
            if rings:
                objects.append(Outline([rings], roi.name, plane=_plane(roi)))
            else:
                left_out[roi.roitype.name.lower()] += 1
    except InputError:
        raise
    except Exception as error:  # damage makes the reader raise anything from struct.error to MemoryError
        reason = " ".join(str(error).split())
        raise InputError(
            f"cannot be read as ImageJ ROI ({reason}): save it again from ImageJ",
            source=path,
        ) from error
    return Outlines(objects, left_out)


def write_rois(path: str | Path, labels: ArrayLike) -> None:
    """Write objects as a zip of ImageJ regions, for the ROI Manager.

    Parameters
    ----------
    path : str or Path
        A ``.zip`` file; missing folders are made, an existing file is replaced.
    labels : array-like of shape (H, W), int
        0 for background, the id of an object elsewhere.

    Raises
    ------
    InputError
        If there are negative ids or no whole numbers of shape (H, W), or the package ``roifile`` is missing.
    OutputError
        If the extension is another one, the image is too large for ImageJ's coordinates, or the file cannot be written.

    Notes
    -----
    Outlines follow the edges of pixels, so that `read_instances` gives the same label image. The name of a region is the
    id of its object. Holes and further pieces are part of one outline: a bridge goes there and back, and bounds nothing.
    A label image without objects is a zip without entries.
    """
    path = Path(path)
    checked = check_label_image(labels, name=str(path))
    roifile = _roifile(path)
    if max(checked.shape) > _LARGEST_SIDE:
        raise OutputError(
            f"{path}: image of {checked.shape[0]} x {checked.shape[1]} pixels, ImageJ ROIs hold coordinates up to "
            f"{_LARGEST_SIDE}: write {path.stem}.geojson"
        )
    rois = {object_id: _roi(polygons, object_id, roifile) for object_id, polygons in trace(checked).items()}

    def save(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
            for object_id, roi in rois.items():
                # a fixed time, so that equal objects make equal files
                file.writestr(zipfile.ZipInfo(f"{object_id}.roi"), roi, zipfile.ZIP_DEFLATED)

    save_as(path, (".zip",), save)


def _roifile(path: Path) -> ModuleType:
    try:
        import roifile
    except ImportError as error:
        raise InputError(
            'ImageJ ROIs need the package roifile: pip install "segkit-bio[objects]"',
            source=path,
        ) from error
    return roifile


def _contents(path: Path) -> Iterator[bytes]:
    if path.suffix.lower() == ".roi":
        yield path.read_bytes()
        return
    with zipfile.ZipFile(path) as file:
        # macOS packs a second, hidden file beside each
        names = [name for name in file.namelist() if not name.startswith("__MACOSX")]
        rois = [name for name in names if name.lower().endswith(".roi")]
        if names and not rois:
            raise InputError(
                "holds no ImageJ ROI, expected .roi files: save it from the ROI Manager",
                source=path,
            )
        sizes = [file.getinfo(name).file_size for name in rois]
        if max(sizes, default=0) > _LARGEST_ROI:
            raise InputError(
                f"an ROI of {max(sizes):,} bytes, expected up to {_LARGEST_ROI:,}: it is damaged, or made to fill the "
                "memory: save it again from ImageJ",
                source=path,
            )
        if (needed := _BYTES_OF_ROI * sum(sizes)) > HARMLESS_BYTES:
            require_bytes(needed, what=count(len(rois), "ROI"), source=path)
        for name in rois:
            yield file.read(name)


def _plane(roi: Any) -> str:
    """Return the slice of a stack that a region was drawn on; "" of those that are on all."""
    if roi.z_position or roi.t_position:
        return f"z {roi.z_position}, t {roi.t_position}"
    return str(roi.position) if roi.position else ""


def _rings(roi: Any, roifile: ModuleType) -> list[Ring]:
    """Return the rings of a region; none if it has no area."""
    types = roifile.ROI_TYPE
    flat = (types.LINE, types.FREELINE, types.POLYLINE, types.ANGLE, types.POINT, types.NOROI)
    if roi.roitype in flat or roi.subtype in (roifile.ROI_SUBTYPE.TEXT, roifile.ROI_SUBTYPE.IMAGE):
        return []
    if roi.roitype in (types.RECT, types.OVAL) and not roi.composite:
        return [_box(roi, is_oval=roi.roitype == types.OVAL)]
    return [np.asarray(ring, dtype=np.float64) for ring in roi.coordinates(multi=True) if len(ring) > 2]


def _box(roi: Any, *, is_oval: bool) -> NDArray[np.float64]:
    """Return the outline of a rectangle, whose corners may be round, or an oval."""
    x, y, width, height = roi.left, roi.top, roi.right - roi.left, roi.bottom - roi.top
    if roi.subpixelrect:
        x, y, width, height = roi.xd, roi.yd, roi.widthd, roi.heightd
    unit = np.array([(0, 0), (1, 0), (1, 1), (0, 1)], dtype=np.float64)
    size = np.array([width, height])
    # width and height of the ellipse whose quarters are the corners
    corner = size if is_oval else np.minimum(roi.rounded_rect_arc_size, size)
    if (corner > 0).all():
        angles = 2 * np.pi * (np.arange(_N_POINTS_OF_OVAL) + 0.5) / _N_POINTS_OF_OVAL
        unit = 0.5 + 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    outline: NDArray[np.float64] = unit * corner + (unit > 0.5) * (size - corner) + (x, y)
    return outline


def _roi(polygons: list[Polygon], object_id: int, roifile: ModuleType) -> bytes:
    points = _bridged([ring for rings in polygons for ring in rings])
    corner = points.min(axis=0)
    right, bottom = points.max(axis=0).tolist()
    roi = roifile.ImagejRoi(
        roitype=roifile.ROI_TYPE.TRACED,
        name=str(object_id),
        left=int(corner[0]),
        top=int(corner[1]),
        right=right,
        bottom=bottom,
        n_coordinates=len(points),
        integer_coordinates=(points - corner).astype(np.int32),
    )
    content: bytes = roi.tobytes()
    return content


def _bridged(rings: list[Ring]) -> Ring:
    """Join rings to one: from the start of the first to each other ring, around it, and back."""
    first, *others = rings
    if not others:
        return first
    start = first[:1]
    return np.concatenate([first, start, *(part for ring in others for part in (ring, ring[:1], start))])
