"""Contents of folders: images alone, or images and their masks, with everything odd or wrong about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from segkit.errors import count, first_few, one_line, table
from segkit.images.alike import COLOUR, Facts, Kind, check_kinds, check_scales, describe_copies
from segkit.images.labels import LabelMap
from segkit.images.numbering import MaskOptions, MasksAre, Objects, summarise_objects
from segkit.images.pairs import PairReader, survey
from segkit.images.pixel_size import describe_size
from segkit.images.reading import Reading
from segkit.images.stems import find_images, name_files, root_of, stem_of

# Integers that use less than this share of their range are probably of fewer bits, 12 of 16 for example.
_SHARE_OF_RANGE = 1 / 8
_BITS = {"bool": "1 bit", "uint8": "8 bits", "uint16": "16 bits", "float32": "32 bits, fractions"}
_CHANNELS = {1: "grey (1 channel)", 3: "colour (3 channels)"}


@dataclass(frozen=True)
class Inspection:
    """Contents of a folder of images, and of a folder of masks.

    Parameters
    ----------
    facts : Facts
        Shapes, types, layouts, digests and limits of the images that could be read.
    messages : list of str
        How the files are read, and anything odd.
    faults : list of str
        What must be mended before training.
    value_counts : dict of int to int, optional
        How many pixels of all masks hold each value; None without masks.
    label_map : LabelMap, optional
        The classes, if they can be told.
    objects : Objects, optional
        Number of objects, their median area and how many touch the border, if objects are told apart.
    is_numbered : bool, default=False
        Whether the masks number objects.
    """

    facts: Facts
    messages: list[str]
    faults: list[str]
    value_counts: dict[int, int] | None = None
    label_map: LabelMap | None = None
    objects: Objects | None = None
    is_numbered: bool = False

    @property
    def stems(self) -> list[str]:
        """The name of each image, as in `Dataset`."""
        return list(self.facts.kinds)

    @property
    def class_counts(self) -> dict[str, int]:
        """How many pixels of all masks belong to each class; empty if the classes cannot be told."""
        if self.label_map is None or self.value_counts is None:
            return {}
        counts = dict.fromkeys(self.label_map.names, 0)
        for value, class_id in self.label_map.id_of_value.items():
            counts[self.label_map.names[class_id]] += self.value_counts.get(value, 0)
        return counts

    def describe(self) -> str:
        """Describe it in a few lines: sizes, channels, bits, values, how masks are read, faults."""
        is_alone = self.value_counts is None
        lines = [count(len(self.stems), "image" if is_alone else "annotated image")]
        if self.stems:
            rows = [("pixel values", "{:g} to {:g}".format(*self.facts.limits))]
            lines += table([*_about_images(self.facts), *(rows if is_alone else self._about_masks())])
        if self.label_map is not None and not self.is_numbered:
            lines.append(self.label_map.describe())
        lines += [one_line(f"note: {message}" if is_alone else message) for message in self.messages]
        return "\n".join([*lines, *(f"fault: {fault}" for fault in self.faults)])

    def _about_masks(self) -> list[tuple[str, str]]:
        counts = self.value_counts or {}
        n_pixels = sum(counts.values())
        values = [f"{value} ({number / n_pixels:.2%})" for value, number in counts.items()]
        rows = [] if self.is_numbered else [("mask values", first_few(values))]
        if self.label_map is not None:
            known = {name: number for name, number in self.class_counts.items() if number}
            shares = [f"{name} ({number / sum(known.values()):.2%})" for name, number in known.items()]
            rows.append(("classes", first_few(shares)))
            if self.label_map.unlabelled is not None:
                rows.append(("annotated", f"{sum(known.values()) / n_pixels:.2%} of the pixels"))
        if self.objects is not None:
            rows.append(("objects", self.objects.describe()))
        return rows


def inspect_images(
    images: str | Path,
    masks: str | Path | None = None,
    *,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
    masks_are: MasksAre | None = None,
    instances: str | Path | None = None,
    only_annotated: bool = False,
    pattern: str | None = None,
    reading: Reading | None = None,
) -> Inspection:
    """Read images, and their masks, one by one and tell what they hold; faults are listed, not raised.

    Parameters
    ----------
    images : str or Path
        Folder of images (sub-folders too), or one image. Without `masks`, masks beside images are left out.
    masks : str or Path, optional
        Masks of the images, as `pair` matches them.
    labels, unlabelled, masks_are, instances, only_annotated, pattern, reading : optional
        As in `load_pairs`.

    Returns
    -------
    Inspection
        Sizes, types, values, classes, objects, oddities and faults.

    Raises
    ------
    InputError
        If there is no such folder, or no image in it, and no masks are given.
    """
    if masks is None:
        return _inspect_alone(Path(images), reading)
    found = survey(
        images,
        masks,
        MaskOptions(labels, unlabelled, masks_are),
        instances=instances,
        only_annotated=only_annotated,
        pattern=pattern,
        reading=reading,
        keeps_images=False,
    )
    counts = sum((Counter(mask.held) for mask in found.masks.values()), Counter[int]())
    numbers = None if found.objects is None else [mask.numbers for mask in found.objects.values()]
    return Inspection(
        facts=found.facts,
        messages=found.notes,
        faults=[str(fault) for fault in found.faults],
        value_counts=dict(sorted(counts.items())),
        label_map=found.label_map,
        objects=None if numbers is None else summarise_objects(numbers),
        is_numbered=found.masks_are == "instances",
    )


def _inspect_alone(images: Path, reading: Reading | None) -> Inspection:
    """Read images without masks, and tell what is odd about them."""
    facts = Facts()
    listed = find_images(images)
    paths = [root_of(images) / relative for relative in listed.paths]
    found = PairReader(reading, paths)
    found.add(name_files(images, listed.paths))
    for path, relative in zip(paths, listed.paths, strict=True):
        stack = found.attempt(found.reading.read, path)
        for page in [] if stack is None else found.pages(path, stem_of(relative), stack):
            if page is not None:
                facts.add(page)
    scales = {} if found.reading.range else facts.scales
    found.notes += found.attempt(check_kinds, facts.kinds) or []
    if facts.kinds and all(kind == Kind(COLOUR, is_grey=True) for kind in facts.kinds.values()):
        found.notes.append("every image is RGB with three equal channels: grey, stored as colour")
    found.notes += found.attempt(check_scales, scales) or []
    dark = [
        name
        for name, scale in scales.items()
        if scale.dtype.startswith("uint") and scale.peak < _SHARE_OF_RANGE
    ]
    if dark:
        found.notes.append(
            f"{count(len(dark), 'image')} ({first_few(dark)}) use less than an eighth of the range of their type: "
            f"12 bits stored as 16, for example, are read as dark images; save all images alike"
        )
    found.notes += describe_copies(facts.digests)
    found.notes += listed.notes
    return Inspection(facts, found.notes, [str(fault) for fault in found.faults])


def _about_images(facts: Facts) -> list[tuple[str, str]]:
    counts = {
        name: Counter[str]()
        for name in ("height x width", "channels", "channel names", "planes", "bit depth", "pixel size")
    }
    for (height, width, n_channels), number in facts.shapes.items():
        counts["height x width"][f"{height} x {width}"] += number
        counts["channels"][_CHANNELS.get(n_channels, f"{n_channels} channels")] += number
    for layout, number in facts.layouts.items():
        lengths = [f"{letter} {length}" for letter, length in zip(layout.axes, layout.shape, strict=True)]
        counts["planes"][", ".join(lengths) or "single"] += number
        counts["channel names"][", ".join(layout.channels) or "without names"] += number
    for dtype, number in facts.dtypes.items():
        counts["bit depth"][_BITS.get(dtype, dtype)] += number
    for (size, source), number in facts.sizes.items():
        told = "unknown" if size is None else f"{describe_size(size)} µm, from {source}"
        counts["pixel size"][told] += number
    usual = {"channel names": ["without names"], "planes": ["single"], "pixel size": ["unknown"]}
    return [(name, _counted(found)) for name, found in counts.items() if list(found) != usual.get(name)]


def _counted(numbers: Mapping[str, int]) -> str:
    """Describe how many there are of each, unless all are of one kind."""
    if len(numbers) == 1:
        return next(iter(numbers))
    return first_few([f"{name} ({number})" for name, number in numbers.items()])
