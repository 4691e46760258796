"""Folders of images beside folders of masks: what they mean, and what is wrong with any of them.

The whole folder is read before anything is refused, so that one message names every fault.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError, count, first_few
from segkit.images.alike import Facts, Page, check_kinds, check_scales, common_channels, describe_copies
from segkit.images.axes import Stack
from segkit.images.findings import Findings
from segkit.images.labels import NAME_THEM, OR_OBJECTS, LabelMap
from segkit.images.masks import MaskReader
from segkit.images.matching import LEAVE_OUT, Pair, match, match_objects
from segkit.images.numbering import (
    CLASS_NAMES,
    UNLABELLED_OBJECT,
    Mask,
    MaskOptions,
    MasksAre,
    check_numbers,
    compare_with_classes,
    describe_broken,
    describe_numbers,
    with_legend,
)
from segkit.images.outlines import ALL_OBJECTS
from segkit.images.pixel_size import FoundSize, PixelSize, find_pixel_size, read_z_step
from segkit.images.read import check_image
from segkit.images.reading import Reading, joined, neighbours
from segkit.images.stems import page_names

_N_ODD_NAMED = 3
# Distances of planes that differ by less are rounded alike.
_SAME_SPACING = 1.01


@dataclass(frozen=True, eq=False)
class Dataset:
    """Annotated images.

    Parameters
    ----------
    stems : list of str
        The name of each image; pages of a multi-page file are "stem#1", "stem#2", ...
    files : list of str
        The stem of the file of each image; pages of one file share it.
    images : list of ndarray of shape (H, W, C), float32
        Images in [0, 1], of one number of channels.
    masks : list of ndarray of shape (H, W), int
        The files' own values; `label_map` turns them into class ids.
    label_map : LabelMap
        The classes and their values in the mask files.
    messages : list of str
        Notes for the user on how the files were read. `label_map` describes itself.
    instances : list of ndarray of shape (H, W), int32, optional
        Objects of each image: 0 for background and pixels without annotation, an id elsewhere. None if the masks hold
        classes and no objects were given.
    dtypes : list of str
        Type of the pixels of each image in its file.
    pixel_sizes : list of PixelSize or None
        Size of a pixel of each image in micrometres, where its file tells.
    reading : Reading
        How the files were read, percentiles replaced by the values they are: `Segmenter.note_files` records it.
    z_steps : list of float or None
        Micrometres from plane to plane of the stack of each image, where its file tells.
    masks_are : {"instances", "classes"}, default="classes"
        Whether the mask files number objects or hold classes.
    """

    stems: list[str]
    files: list[str]
    images: list[NDArray[np.float32]]
    masks: list[NDArray[Any]]
    label_map: LabelMap
    messages: list[str]
    instances: list[NDArray[np.int32]] | None = None
    dtypes: list[str] = field(default_factory=list)
    pixel_sizes: list[PixelSize | None] = field(default_factory=list)
    reading: Reading = field(default_factory=Reading)
    z_steps: list[float | None] = field(default_factory=list)
    masks_are: MasksAre = "classes"

    @property
    def z_spacing(self) -> float | None:
        """Distance of planes divided by the width of a pixel; None where files do not tell it, or differ."""
        if not self.z_steps or None in self.z_steps or None in self.pixel_sizes:
            return None
        found = [
            step / size.x
            for step, size in zip(self.z_steps, self.pixel_sizes, strict=True)
            if step is not None and size is not None
        ]
        return found[0] if max(found) <= min(found) * _SAME_SPACING else None

    def describe(self) -> list[str]:
        """Describe line by line how the files were read."""
        is_numbered = self.masks_are == "instances"
        return list(self.messages) if is_numbered else [self.label_map.describe(), *self.messages]


class Item(NamedTuple):
    """A page of an image, its mask, and the objects of a further file."""

    page: Page
    mask: Mask
    objects: Mask | None = None


def load_pairs(
    images: str | Path,
    masks: str | Path,
    *,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
    masks_are: MasksAre | None = None,
    instances: str | Path | None = None,
    only_annotated: bool = False,
    pattern: str | None = None,
    reading: Reading | None = None,
) -> Dataset:
    """Read every image with its mask, ready for training.

    Parameters
    ----------
    images, masks : str or Path
        Folders or files, as `pair` matches them.
    labels : mapping of int to str, optional
        The class name of each mask value, as in `LabelMap.infer`.
    unlabelled : int, optional
        The mask value of pixels nobody annotated.
    masks_are : {"instances", "classes"}, optional
        Whether masks number objects or hold classes. By default masks of outlines number objects, and label images do if
        they hold more than ten values, nearly all of them in one piece.
    instances : str or Path, optional
        Objects of the same images, as label images or outlines, where `masks` holds classes.
    only_annotated : bool, default=False
        Leave out images of a folder without a mask, and masks without a labelled pixel, instead of refusing them. Notes
        tell how many.
    pattern : str, optional
        As in `pair`.
    reading : Reading, optional
        Axes of the files, range of their values, and context of planes. Of a stack with context, planes without a
        labelled pixel are left out of the images, and serve as context.

    Returns
    -------
    Dataset
        Images, masks in the files' own values, and the label map. Masks that number objects are given as `instances`,
        and as masks of 0 and 255, with 128 where nobody annotated.

    Raises
    ------
    InputError
        If anything is wrong with any file. Every fault is counted, ten files are named for each.
    """
    found = survey(
        images,
        masks,
        MaskOptions(labels, unlabelled, masks_are),
        instances=instances,
        only_annotated=only_annotated,
        pattern=pattern,
        reading=reading,
    )
    found.refuse()
    pages = [item.page for item in found.items]
    n_channels = common_channels(found.facts.kinds)
    assert found.label_map is not None  # or there was a fault to raise
    assert n_channels is not None
    objects = None if found.objects is None else [found.objects[page.stem] for page in pages]
    return Dataset(
        stems=[page.stem for page in pages],
        files=[page.file for page in pages],
        images=[joined(page.around, n_channels) for page in pages],
        masks=[found.masks[page.stem].values for page in pages],
        label_map=found.label_map,
        messages=found.notes,
        instances=None if objects is None else [mask.labels.astype(np.int32) for mask in objects],
        dtypes=[page.dtype for page in pages],
        pixel_sizes=[page.pixel_size for page in pages],
        reading=found.reading.note([page.layout for page in pages]),
        z_steps=[page.z_step for page in pages],
        masks_are=found.masks_are,
    )


@dataclass
class Survey(Findings):
    """Images that were read, what their masks mean, and everything odd or wrong about them.

    Masks that number objects are the `objects`, and `masks` are the classes made of them.
    """

    items: list[Item] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    reading: Reading = field(default_factory=Reading)
    masks: dict[str, Mask] = field(default_factory=dict)
    label_map: LabelMap | None = None
    objects: dict[str, Mask] | None = None
    masks_are: MasksAre = "classes"


def survey(
    images: str | Path,
    masks: str | Path,
    options: MaskOptions,
    *,
    instances: str | Path | None = None,
    only_annotated: bool = False,
    pattern: str | None = None,
    reading: Reading | None = None,
    keeps_images: bool = True,
) -> Survey:
    """Read every image with its mask, see `load_pairs`; without `keeps_images` only their masks stay in memory."""
    found, blank = Survey(), list[str]()
    matched = match(images, masks, only_annotated=only_annotated, pattern=pattern)
    found.add(matched)
    objects = None
    if instances is not None:
        objects = match_objects(images, Path(instances), matched, only_annotated=only_annotated)
        known = {str(fault) for fault in found.faults}
        found.faults += [fault for fault in objects.faults if str(fault) not in known]
        found.notes += objects.notes
    reader = PairReader(reading, [entry.image for entry in matched.pairs], options)
    found.reading = reader.reading
    for item in reader.read(matched.pairs, None if objects is None else objects.pairs):
        page = item.page
        is_sparse = only_annotated or reader.reading.context > 0
        if is_sparse and (
            list(item.mask.held) == [item.mask.unlabelled] or (only_annotated and _may_be_missed(item.mask))
        ):
            blank.append(page.stem)
            continue
        found.facts.add(page)
        found.items.append(item if keeps_images else item._replace(page=page._replace(around=[])))
    found.add(reader)
    if blank:
        found.notes.append(
            f"{count(len(blank), 'mask')} without a labelled pixel left out ({first_few(blank)})"
        )
    doubtful = [item.page.stem for item in found.items if _may_be_missed(item.mask)]
    if doubtful and options.masks_are != "instances":
        told = (
            f"without any outline of an object ({first_few(doubtful)}): nothing there, or not annotated yet?"
        )
        cures = f"If nothing, {ALL_OBJECTS}; else annotate them{LEAVE_OUT}"
        found.faults.append(InputError(f"{count(len(doubtful), 'image')} {told} {cures}"))
    if reader.reading.range is None:  # else all are scaled alike
        found.notes += found.attempt(check_scales, found.facts.scales) or []
    _interpret(found, options, has_objects=objects is not None, has_blank=bool(blank))
    found.notes += describe_copies(found.facts.digests)
    return found


def _may_be_missed(mask: Mask) -> bool:
    """Return whether outlines tell of no object, and of no region without objects: many tools list every image."""
    return mask.is_outlined and list(mask.held) == [0]


def _interpret(found: Survey, options: MaskOptions, *, has_objects: bool, has_blank: bool) -> None:
    """Find the classes and objects of masks, and check that images and masks fit together."""
    n_faults, shown = len(found.faults), options.unlabelled
    names = [item.page.stem for item in found.items]
    masks = found.masks = {item.page.stem: item.mask for item in found.items}
    options = with_legend(options, masks.values())
    if has_objects:
        if options.masks_are == "instances":
            fault = "data.instances beside data.masks=instances: objects twice, leave one of the two out"
            found.faults.append(InputError(fault))
        options = options._replace(masks_are="classes")
    if told := found.attempt(describe_numbers, masks, options):
        found.notes = [told[0], *found.notes, *told[1:]]
        is_partial = shown is not None or any(mask.unlabelled is not None for mask in masks.values())
        options = MaskOptions(CLASS_NAMES, UNLABELLED_OBJECT if is_partial else None)
        found.masks_are, found.objects = "instances", masks
        masks = found.masks = {stem: Mask(mask.classes, options.unlabelled) for stem, mask in masks.items()}
    is_sound = len(found.faults) == n_faults
    values_of = {stem: list(mask.held) for stem, mask in masks.items()} if is_sound else {}
    found.faults += [
        InputError(f"the name of {n_images} images, a page of a file among them: rename a file", source=stem)
        for stem, n_images in Counter(names).items()
        if n_images > 1
    ]
    found.notes += found.attempt(check_kinds, found.facts.kinds) or []
    found.faults += [
        InputError("mask has no labelled pixel: annotate some, or leave that image out", source=stem)
        for stem, values in values_of.items()
        if values == [options.unlabelled]
    ]
    if not values_of and found.faults:  # no mask could be read, which is a fault told already
        return
    found.label_map = label_map = found.attempt(
        _infer, values_of, options, is_shown=options.unlabelled == shown
    )
    if label_map is None:
        return
    found.notes += _of_one_class(values_of, label_map)
    found.notes += _scribbles(values_of, options.unlabelled, shown, has_blank=has_blank)
    if has_objects:
        objects = {item.page.stem: item.objects for item in found.items if item.objects is not None}
        found.attempt(check_numbers, objects, key="data.instances", cure="give them as masks")
        ids_of = {stem: label_map.encode(masks[stem].values) for stem in objects}
        labels_of = {stem: mask.labels for stem, mask in objects.items()}
        found.notes += describe_broken(objects) + compare_with_classes(labels_of, ids_of, label_map.names[0])
        found.objects = {
            stem: objects.get(stem) or Mask(np.zeros(mask.values.shape, dtype=np.int32))
            for stem, mask in masks.items()
        }


class PairReader(Findings):
    """Reader of images and their masks, one after the other; faults and notes are gathered, and the next is read."""

    def __init__(
        self,
        reading: Reading | None = None,
        images: Sequence[Path] = (),
        options: MaskOptions = MaskOptions(),  # noqa: B008
    ) -> None:
        super().__init__()
        self.reading = reading or Reading()
        learnt = self.attempt(self.reading.learn, images) if images else self.reading
        self.reading = learnt or replace(self.reading, range="0..1", is_learnt=True)
        axes, masks_are = self.reading.axes, options.masks_are
        self._masks = MaskReader(axes=axes, unlabelled=options.unlabelled, masks_are=masks_are)
        self._objects = MaskReader(axes=axes, masks_are="instances", kind="label image")

    def read(self, pairs: Sequence[Pair], objects: Sequence[Pair] | None = None) -> Iterator[Item]:
        """Read pair after pair, with the objects of the images if they are given."""
        objects_of = {entry.stem: entry.mask for entry in objects or ()}
        for entry in pairs:
            file = self.attempt(self._masks.open, entry.mask)
            n_masks = None if file is None else file.n_pages
            stack = self.attempt(self.reading.read, entry.image, n_masks=n_masks)
            if stack is None:
                continue
            pages = self.pages(entry.image, entry.stem, stack)
            sizes = [stored.shape[:2] for stored in stack.pages]
            of_image = entry.stem, sizes, entry.image
            masks = None if file is None else self.attempt(self._masks.pages, file, *of_image)
            numbers: Sequence[Mask | None] | None = [None] * len(pages)
            # an image without objects among others is told of where files are matched
            if (path := objects_of.get(entry.stem)) is not None:
                own = self.attempt(self._objects.open, path)
                numbers = None if own is None else self.attempt(self._objects.pages, own, *of_image)
            for page, mask, one in zip(pages, masks or (), numbers or (), strict=False):
                if page is not None:
                    yield Item(page, mask, one)
        self.notes += [*self._masks.notes, *self._objects.notes]

    def pages(self, path: Path, file: str, stack: Stack) -> list[Page | None]:
        """Scale the pages of an image file; None of those that nothing can be learnt from."""
        size, source = self.attempt(find_pixel_size, path) or FoundSize()
        z_step = self.attempt(read_z_step, path)
        if self.attempt(neighbours, stack.layout, 0, self.reading.context, name=str(path)) is None:
            return []
        names = page_names(file, len(stack.pages))
        images = [
            self.attempt(self._scale, stored, name)
            for name, stored in zip(page_names(str(path), len(names)), stack.pages, strict=True)
        ]
        pages: list[Page | None] = []
        for index, (stem, stored) in enumerate(zip(names, stack.pages, strict=True)):
            places = neighbours(stack.layout, index, self.reading.context, name=str(path))
            around = [plane for plane in (images[place] for place in places) if plane is not None]
            limits = float(stored.min()), float(stored.max())
            page = Page(stem, file, around, str(stored.dtype), limits, stack.layout, size, z_step, source)
            pages.append(page if len(around) == len(places) else None)
        return pages

    def _scale(self, page: NDArray[Any], name: str) -> NDArray[np.float32]:
        image = self.reading.scale(page, name=name)
        # planes that are blank may lie at the end of a stack
        if not (self.reading.context and image.min() == image.max()):
            check_image(image, name=name)
        return image


def _of_one_class(values_of: Mapping[str, Sequence[int]], label_map: LabelMap) -> list[str]:
    """Name the masks that hold one class only: there may be nothing else to see, or somebody forgot."""
    ids, stems = label_map.id_of_value, defaultdict[int, list[str]](list)
    for stem, values in values_of.items():
        held = {ids[value] for value in values if value in ids}
        if len(held) == 1:
            stems[held.pop()].append(stem)
    return [
        f"{count(len(found), 'mask')} of {label_map.names[class_id]} only ({first_few(found)}): right if there is "
        f"nothing else to see, else annotate the rest"
        for class_id, found in stems.items()
    ]


def _scribbles(
    values_of: Mapping[str, Sequence[int]], unlabelled: int | None, shown: int | None, *, has_blank: bool
) -> list[str]:
    """Describe which masks have pixels nobody annotated, where others have none or no mask has any."""
    if unlabelled is None:
        return []
    partial = [stem for stem, values in values_of.items() if unlabelled in values]
    whole = [stem for stem in values_of if stem not in partial]
    if not partial and not has_blank:
        return [f"no mask holds {shown}, the value of unlabelled pixels: every pixel counts as annotated"]
    if not partial or not whole:
        return []
    return [
        f"{count(len(partial), 'mask')} annotated in part ({first_few(partial)}) and {len(whole)} as a whole "
        f"({first_few(whole)}): all are used"
    ]


def _infer(values_of: Mapping[str, Sequence[int]], options: MaskOptions, *, is_shown: bool) -> LabelMap:
    """Find the classes of masks; those whose values differ from the others are named."""
    values, unlabelled = set[int]().union(*values_of.values()), options.unlabelled
    try:
        return LabelMap.infer(values, labels=options.labels, unlabelled=unlabelled)
    except InputError as fault:
        odd = _of_other_values(values_of, unlabelled) if options.labels is None else None
        is_idle = is_shown and unlabelled is not None and unlabelled not in (values or {unlabelled})
        start = f"no mask holds {unlabelled}, given as data.unlabelled; " if is_idle else ""
        raise InputError(f"{start}{odd or fault}") from fault


def _of_other_values(values_of: Mapping[str, Sequence[int]], unlabelled: int | None) -> str | None:
    """Ask about masks that hold other values than the two of most masks: a slip, unlabelled pixels, or a rare class."""
    sets = {stem: frozenset(values) - {unlabelled} for stem, values in values_of.items()}
    twos = Counter(found for found in sets.values() if len(found) == 2)
    if not twos:
        return None
    [(usual, _)] = twos.most_common(1)
    values = sorted(set[int]().union(*sets.values()))
    odd = [stem for stem, found in sets.items() if not found <= usual]
    if any(usual < found for found in sets.values()):
        if len(values) != 3:
            return None
        [value] = set(values) - usual
        low, high = sorted(usual)
        return (
            f"masks hold {low} and {high}, and {value} in {count(len(odd), 'mask')} ({first_few(odd, most=_N_ODD_NAMED)}): "
            f"if {value} marks pixels nobody annotated, --set data.unlabelled={value}; if it is a class, name all, "
            f"--set data.labels='{{{', '.join(f'{value}: NAME' for value in values)}}}'; {OR_OBJECTS}"
        )
    if not 0 < len(odd) <= len(sets) / 2:
        return None
    more = f" and {len(odd) - _N_ODD_NAMED} more" if len(odd) > _N_ODD_NAMED else ""
    noun, them = ("mask", "it") if len(odd) == 1 else ("masks", "them")
    return (
        f"masks hold {len(values)} values ({first_few([*map(str, values)])}), without the {noun} of "
        f"{', '.join(odd[:_N_ODD_NAMED])}{more} only {' and '.join(map(str, sorted(usual)))}: save {them} with these two, "
        f"or name every value, {NAME_THEM}"
    )
