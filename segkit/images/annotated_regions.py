"""Training images from a slide of which some regions are annotated: a crop around each."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from segkit._common.memory import require_bytes
from segkit.errors import InputError, count, first_few
from segkit.images.geojson import outlines_from_geojson
from segkit.images.headers import HARMLESS_BYTES
from segkit.images.labels import UNLABELLED, LabelMap
from segkit.images.large_image import LargeImage
from segkit.images.outlines import REGION, Outline
from segkit.images.pairs import Dataset
from segkit.images.polygons import Polygon, fill, points_of

# Pixels around an annotated region that are read too, so that its features are those that it has in the slide.
MARGIN = 64
# Of a crop, as it is stored in up to 16 bits and as float32.
_BYTES_OF_VALUE = 6
_BACKGROUND = "background"


def read_annotated_regions(image: LargeImage, path: Path) -> Dataset:
    """Read a crop for each group of annotated regions of a slide: GeoJSON in pixels of level 0; later regions lie on top."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: no GeoJSON ({error}): export the annotations of the slide as GeoJSON"
        ) from error
    outlines = outlines_from_geojson(content, name=str(path))
    annotations = [region for region in outlines.regions if region.class_name != REGION]
    regions, n_detections = (annotations, len(outlines.objects)) if annotations else (outlines.objects, 0)
    label_map, number_of = _classes(regions, path)
    try:
        drawn = [(_scaled(region, image.downsample), number_of[region.class_name]) for region in regions]
    except InputError as fault:
        raise InputError(f"{fault}", source=path) from fault
    boxes = _apart([_box(polygons, image, path) for polygons, _ in drawn])
    n_pixels = sum((bottom - top) * (right - left) for top, left, bottom, right in boxes)
    if (needed := n_pixels * image.shape[2] * _BYTES_OF_VALUE) > HARMLESS_BYTES:
        require_bytes(needed, what=f"{count(len(boxes), 'crop')} of {n_pixels:,} pixels", source=image.path)
    images, masks = [], []
    for top, left, bottom, right in boxes:
        mask = np.full((bottom - top, right - left), UNLABELLED, dtype=np.uint8)
        for polygons, number in drawn:
            moved = [[ring - np.array([left, top]) for ring in polygon] for polygon in polygons]
            found = fill(moved, mask.shape)
            height, width = found.inside.shape
            mask[found.top : found.top + height, found.left : found.left + width][found.inside] = number
        images.append(image[top:bottom, left:right])
        masks.append(mask)
    stems = [f"{image.path.name} row {top} column {left}" for top, left, *_ in boxes]
    told = f"{count(len(regions), 'annotated region')} in {count(len(boxes), 'crop')} of {image.path}"
    return Dataset(
        stems,
        stems,
        images,
        list(masks),
        label_map,
        [
            told,
            *([f"{count(n_detections, 'detection')} beside annotations left out"] if n_detections else []),
        ],
        dtypes=[str(image.stored)] * len(boxes),
        pixel_sizes=[None] * len(boxes),
    )


def _classes(regions: list[Outline], path: Path) -> tuple[LabelMap, dict[str, int]]:
    """Assign a number to each class by its name, the background first."""
    without = sum(not region.class_name for region in regions)
    if without or not regions:
        raise InputError(
            f"{path}: {count(without, 'region')} without a class of {len(regions)}: give every region a class, such as "
            "Tumor, and unlike ones another"
        )
    names = sorted(
        {region.class_name for region in regions}, key=lambda name: (name.lower() != _BACKGROUND, name)
    )
    if len(names) < 2:
        raise InputError(
            f"{path}: all regions are {first_few(names)}: annotate some of another class, such as background"
        )
    numbers = {name: number for number, name in enumerate(names)}
    labels = {number: name for name, number in numbers.items()}
    return LabelMap.infer(list(labels), labels=labels, unlabelled=UNLABELLED), numbers


def _scaled(region: Outline, downsample: float) -> list[Polygon]:
    return [[ring / downsample for ring in points_of(polygon)] for polygon in region.polygons]


def _box(polygons: list[Polygon], image: LargeImage, path: Path) -> tuple[int, int, int, int]:
    """First row and column, and last ones, of a region with its margin."""
    rings = [ring for polygon in polygons for ring in polygon]
    if not rings:
        raise InputError("a region without points: draw it, or remove it", source=path)
    points = np.concatenate(rings)
    height, width = image.shape[:2]
    (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
    if right <= 0 or bottom <= 0 or left >= width or top >= height:
        raise InputError(
            f"{path}: a region at row {top:.0f}, column {left:.0f} lies outside of {image.path} ({height} x {width} "
            "pixels at this level): export the annotations of this image"
        )
    return (
        max(0, math.floor(top) - MARGIN),
        max(0, math.floor(left) - MARGIN),
        min(height, math.ceil(bottom) + MARGIN),
        min(width, math.ceil(right) + MARGIN),
    )


def _apart(boxes: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Join boxes that overlap, so that no pixel is in two crops."""
    kept: list[tuple[int, int, int, int]] = []
    for box in boxes:
        joined = box
        while over := [other for other in kept if _overlap(joined, other)]:
            kept = [other for other in kept if other not in over]
            top, left, bottom, right = zip(joined, *over, strict=True)
            joined = min(top), min(left), max(bottom), max(right)
        kept.append(joined)
    return kept


def _overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
