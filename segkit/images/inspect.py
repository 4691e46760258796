"""Contents of folders: images alone, or images and their masks, with everything odd or wrong about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from segkit._common import count, first_few, table
from segkit.errors import InputError
from segkit.images.alike import COLOUR, Facts, Kind, check_kinds, check_scales, describe_copies
from segkit.images.axes import Layout
from segkit.images.labels import LabelMap
from segkit.images.numbering import MaskOptions, MasksAre, Objects, summarise_objects
from segkit.images.pairs import learnt, survey
from segkit.images.read import check_image
from segkit.images.reading import Reading, neighbours
from segkit.images.stems import by_stem, list_without_masks, page_names, root_of, stem_of

# Integers that use less than this share of their range are probably of fewer bits, 12 of 16 for example.
_SHARE_OF_RANGE = 1 / 8
_BITS = {"bool": "1 bit", "uint8": "8 bits", "uint16": "16 bits", "float32": "32 bits, fractions"}
_CHANNELS = {1: "grey (1 channel)", 3: "colour (3 channels)"}


@dataclass(frozen=True)
class Inspection:
    """Contents of a folder of images and a folder of masks.

    Parameters
    ----------
    stems : list of str
        The name of each annotated image, as in `Dataset`.
    shapes : dict of tuple to int
        How many images have each shape (H, W, C).
    dtypes : dict of str to int
        How many images have each dtype in their files.
    value_counts : dict of int to int
        How many pixels of all masks hold each value.
    label_map : LabelMap or None
        The classes, if they can be told.
    messages : list of str
        How the files are read.
    faults : list of str
        What must be mended before training.
    objects : Objects or None
        Number of objects, their median area and how many touch the border, if objects are told apart.
    is_numbered : bool
        Whether the masks number objects.
    layouts : dict of Layout to int
        How many images have each layout of planes and names of channels.
    """

    stems: list[str]
    shapes: dict[tuple[int, ...], int]
    dtypes: dict[str, int]
    value_counts: dict[int, int]
    label_map: LabelMap | None
    messages: list[str]
    faults: list[str]
    objects: Objects | None = None
    is_numbered: bool = False
    layouts: dict[Layout, int] = field(default_factory=dict)

    @property
    def class_counts(self) -> dict[str, int]:
        """How many pixels of all masks belong to each class; empty if the classes cannot be told."""
        if self.label_map is None:
            return {}
        counts = dict.fromkeys(self.label_map.names, 0)
        for value, class_id in self.label_map.id_of_value.items():
            counts[self.label_map.names[class_id]] += self.value_counts.get(value, 0)
        return counts

    def describe(self) -> str:
        """Describe it in a few lines: sizes, channels, bits, mask values, how they are read, faults."""
        lines = [count(len(self.stems), "annotated image")]
        if self.stems:
            n_pixels = sum(self.value_counts.values())
            values = [f"{value} ({number / n_pixels:.2%})" for value, number in self.value_counts.items()]
            rows = _about_images(self.shapes, self.dtypes, self.layouts)
            rows += [] if self.is_numbered else [("mask values", first_few(values))]
            if (label_map := self.label_map) is not None:
                known = {name: number for name, number in self.class_counts.items() if number}
                shares = [f"{name} ({number / sum(known.values()):.2%})" for name, number in known.items()]
                rows.append(("classes", first_few(shares)))
                if label_map.unlabelled is not None:
                    rows.append(("annotated", f"{sum(known.values()) / n_pixels:.2%} of the pixels"))
            if self.objects is not None:
                rows.append(("objects", self.objects.describe()))
            lines += table(rows)
        if self.label_map is not None and not self.is_numbered:
            lines.append(self.label_map.describe())
        return "\n".join([*lines, *self.messages, *(f"fault: {fault}" for fault in self.faults)])


@dataclass(frozen=True)
class ImageInspection:
    """Contents of a folder of images, or of one image file.

    Parameters
    ----------
    stems : list of str
        The name of each image that could be read; pages of a multi-page file are "stem#1", "stem#2", ...
    shapes : dict of tuple to int
        How many images have each shape (H, W, C).
    dtypes : dict of str to int
        How many images have each dtype in their files.
    value_range : tuple of float
        Smallest and largest pixel value of all files, as stored.
    messages : list of str
        Anything odd, and how it is read.
    faults : list of str
        What must be mended.
    layouts : dict of Layout to int
        How many images have each layout of planes and names of channels.
    """

    stems: list[str]
    shapes: dict[tuple[int, ...], int]
    dtypes: dict[str, int]
    value_range: tuple[float, float]
    messages: list[str]
    faults: list[str]
    layouts: dict[Layout, int] = field(default_factory=dict)

    def describe(self) -> str:
        """Describe it in a few lines: sizes, channels, bits, values, anything odd, faults."""
        lines = [count(len(self.stems), "image")]
        if self.stems:
            low, high = self.value_range
            lines += table(
                [
                    *_about_images(self.shapes, self.dtypes, self.layouts),
                    ("pixel values", f"{low:g} to {high:g}"),
                ]
            )
        notes = [f"note: {message}" for message in self.messages]
        return "\n".join([*lines, *notes, *(f"fault: {fault}" for fault in self.faults)])


def inspect_pairs(
    images: str | Path,
    masks: str | Path,
    *,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
    masks_are: MasksAre | None = None,
    instances: str | Path | None = None,
    only_annotated: bool = False,
    reading: Reading | None = None,
) -> Inspection:
    """Read images and masks one by one and tell what they hold; faults are listed, not raised.

    Parameters
    ----------
    images, masks : str or Path
        Folders or files, as `pair` matches them.
    labels, unlabelled, masks_are, instances, only_annotated, reading : optional
        As in `load_pairs`.

    Returns
    -------
    Inspection
        Shapes, dtypes, mask values, classes, objects and faults.
    """
    found = survey(
        images,
        masks,
        MaskOptions(labels, unlabelled, masks_are),
        instances=instances,
        only_annotated=only_annotated,
        reading=reading,
        keeps_images=False,
    )
    facts, meaning = found.facts, found.meaning
    objects = meaning.instances
    counted: Counter[int] = Counter()
    for mask in meaning.masks.values():
        values, counts = np.unique(mask, return_counts=True)
        counted.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    return Inspection(
        stems=[item.stem for item in found.items],
        shapes=dict(facts.shapes),
        dtypes=dict(facts.dtypes),
        value_counts=dict(sorted(counted.items())),
        label_map=meaning.label_map,
        messages=found.messages,
        faults=found.faults,
        objects=None if objects is None else summarise_objects(list(objects.values())),
        is_numbered=objects is not None and instances is None,
        layouts=dict(facts.layouts),
    )


def inspect_images(images: str | Path, *, reading: Reading | None = None) -> ImageInspection:
    """Read images one by one and tell what they hold; faults are listed, not raised.

    Parameters
    ----------
    images : str or Path
        Folder of images (sub-folders too), or one image. Masks beside images, NAME_mask beside NAME, are left out.
    reading : Reading, optional
        Axes, range and context, as in `load_pairs`.

    Returns
    -------
    ImageInspection
        Shapes, dtypes, range of values, oddities and faults.

    Raises
    ------
    InputError
        If there is no such folder, or no image in it.
    """
    images = Path(images)
    listed, masks = list_without_masks(images)
    faults: list[str] = []
    by_stem(images, faults)  # for its faults: two files of one name
    facts = Facts()
    low, high = float("inf"), float("-inf")
    reading = learnt(reading, [root_of(images) / relative for relative in listed], faults)
    for relative in listed:
        path = root_of(images) / relative
        try:
            stack = reading.read(path)
            neighbours(stack.layout, 0, reading.context, name=str(path))
        except InputError as fault:
            faults.append(str(fault))
            continue
        for name, page in zip(page_names(stem_of(relative), len(stack.pages)), stack.pages, strict=True):
            try:
                image = reading.scale(page, name=name)
                check_image(image, name=name)
            except InputError as fault:
                faults.append(str(fault))
                continue
            facts.add(name, image, str(page.dtype), stack.layout)
            low, high = min(low, float(page.min())), max(high, float(page.max()))
    messages = _odd(facts, faults, is_scaled=reading.range is not None)
    if masks:
        names = [path.as_posix() for path in masks]
        messages.append(
            f"{count(len(masks), 'mask')} beside the images left out ({first_few(names)}): to look at them too, give the "
            "folder twice"
        )
    return ImageInspection(
        stems=list(facts.kinds),
        shapes=dict(facts.shapes),
        dtypes=dict(facts.dtypes),
        value_range=(low, high),
        messages=messages,
        faults=faults,
        layouts=dict(facts.layouts),
    )


def _odd(facts: Facts, faults: list[str], *, is_scaled: bool) -> list[str]:
    """Describe what is odd about images that can be read; channels that do not fit together are a fault."""
    messages: list[str] = []
    scales = {} if is_scaled else facts.scales
    check_kinds(facts.kinds, faults, messages)
    if facts.kinds and all(kind == Kind(COLOUR, is_grey=True) for kind in facts.kinds.values()):
        messages.append("every image is RGB with three equal channels: grey, stored as colour")
    check_scales(scales, faults, messages)
    dark = [
        name
        for name, scale in scales.items()
        if scale.dtype.startswith("uint") and scale.peak < _SHARE_OF_RANGE
    ]
    if dark:
        messages.append(
            f"{count(len(dark), 'image')} ({first_few(dark)}) use less than an eighth of the range of their type: "
            f"12 bits stored as 16, for example, are read as dark images; save all images alike"
        )
    return messages + describe_copies(facts.digests)


def _about_images(
    shapes: Mapping[tuple[int, ...], int], dtypes: Mapping[str, int], layouts: Mapping[Layout, int]
) -> list[tuple[str, str]]:
    sizes: Counter[str] = Counter()
    channels: Counter[str] = Counter()
    planes: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for (height, width, n_channels), number in shapes.items():
        sizes[f"{height} x {width}"] += number
        channels[_CHANNELS.get(n_channels, f"{n_channels} channels")] += number
    for layout, number in layouts.items():
        lengths = [f"{letter} {length}" for letter, length in zip(layout.axes, layout.shape, strict=True)]
        planes[", ".join(lengths) or "single"] += number
        names[", ".join(layout.channels) or "without names"] += number
    bits = {_BITS.get(dtype, dtype): number for dtype, number in dtypes.items()}
    rows = [("height x width", _counted(sizes)), ("channels", _counted(channels))]
    if set(names) - {"without names"}:
        rows.append(("channel names", _counted(names)))
    if set(planes) - {"single"}:
        rows.append(("planes", _counted(planes)))
    return [*rows, ("bit depth", _counted(bits))]


def _counted(numbers: Mapping[str, int]) -> str:
    """Describe how many there are of each, unless all are of one kind."""
    if len(numbers) == 1:
        return next(iter(numbers))
    return first_few([f"{name} ({number})" for name, number in numbers.items()])
