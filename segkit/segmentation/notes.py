"""Notes on a run over a folder: what it leaves out or alone, and images that look unlike the training images."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from segkit.errors import count, first_few
from segkit.images.alike import describe_changes, of_other_scale
from segkit.images.record import Record
from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.outcome import ImageRow
from segkit.segmentation.results import Appearance


def notes_on_images(
    segmenter: BaseSegmenter,
    looks: Mapping[str, Appearance],
    root: Path,
    trained: tuple[str, ...],
    n_channels: int,
) -> list[str]:
    """Note images that are read with other channels than their files have, or look unlike the training images."""
    peaks = getattr(getattr(segmenter, "summary_", None), "peaks", None)
    unlike = {
        str(root / name): look.channels
        for name, look in looks.items()
        if look.channels and look.channels != trained
    }
    return [
        *describe_changes(
            {name: look.kind for name, look in looks.items()}, n_channels, like="the training images"
        ),
        *_notes_on_names(unlike, trained),
        *_notes_on_scale({root / name: look.peak for name, look in looks.items()}, peaks),
    ]


def notes_on_others(record: Record, others: Sequence[ImageRow], made_by: str) -> list[str]:
    """Note earlier images whose rows stay in the tables although another model or other options made them."""
    odd = [row.image for row in others if record.entries[row.image].made_by != made_by]
    if not odd:
        return []
    return [
        f"results of {count(len(odd), 'other image')} in {record.output} are of another model or other options "
        f"({first_few(odd, most=3)}): give the folder of the images to make all anew"
    ]


def notes_on_removed(record: Record, present: Collection[str]) -> list[str]:
    """Note images of an earlier run that are no longer there."""
    gone = sorted(
        name
        for name, entry in record.entries.items()
        if name not in present and (mask := entry.row.get("mask")) and os.path.lexists(record.output / mask)
    )
    if not gone:
        return []
    verb, their = ("is", "its mask is") if len(gone) == 1 else ("are", "their masks are")
    return [
        f"{count(len(gone), 'image')} of an earlier run {verb} gone ({first_few(gone)}): {their} left alone"
    ]


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
