"""Folders of images beside folders of masks: which file belongs to which, and what is wrong with any of them.

The whole folder is read before anything is refused, so that one message names every fault.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from segkit._common import count, first_few, group_faults
from segkit.errors import InputError
from segkit.images.alike import (
    Facts,
    Kind,
    check_kinds,
    check_scales,
    common_channels,
    describe_copies,
)
from segkit.images.axes import Layout, Stack
from segkit.images.coco import Coco
from segkit.images.labels import LabelMap
from segkit.images.masks import Drawn, MaskReader, open_objects, part_folder, size_fault
from segkit.images.numbering import (
    CLASS_NAMES,
    UNLABELLED_OBJECT,
    MaskOptions,
    MasksAre,
    check_numbers,
    classes_of,
    compare_with_classes,
    find_instances,
)
from segkit.images.outlines import OUTLINE_EXTENSIONS
from segkit.images.pixel_size import PixelSize, read_pixel_size, read_z_step
from segkit.images.read import check_image
from segkit.images.reading import Reading, joined, neighbours
from segkit.images.stems import (
    by_stem,
    has_images,
    image_name,
    masks_by_stem,
    match_stems,
    outlines_of_image,
    page_names,
    paths_by_stem,
    stem_of,
)

Result = TypeVar("Result")

_N_ODD_NAMED = 3
_NO_IMAGE = np.empty((0, 0, 0), dtype=np.float32)
# Distances of planes that differ by less are rounded alike.
_SAME_SPACING = 1.01
_LEAVE_OUT = ", or train without such images (segkit train --only-annotated, in Python only_annotated=True)"


class Pair(NamedTuple):
    """An image file and its mask file, named by the stem of the image (its path in the folder, without extension)."""

    stem: str
    image: Path
    mask: Path

    @property
    def name(self) -> str:
        """The stem; of an image that was given as a file, the name of the file."""
        return self.stem or stem_of(Path(self.image.name))


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
    """One page of a pair, the mask in the file's own values, or as numbers of outlines; objects of a further file."""

    stem: str
    file: str
    image: NDArray[np.float32]
    mask: NDArray[Any]
    dtype: str
    is_outlined: bool = False
    instances: NDArray[np.int32] | None = None
    pixel_size: PixelSize | None = None
    layout: Layout = Layout()
    around: Sequence[NDArray[np.float32]] = ()
    z_step: float | None = None


def pair(images: str | Path, masks: str | Path, *, only_annotated: bool = False) -> list[Pair]:
    """Match the images of one folder with the masks of another by their names.

    Parameters
    ----------
    images, masks : str or Path
        Two folders, two files, or one image file and a folder. The mask of ``a/1.png`` is ``a/1.tif`` or
        ``a/1_mask.png``, in the same sub-folder. ``_mask`` may also be ``-mask``, ``_masks``, ``_label``, ``_labels``,
        ``_gt``, ``_seg`` and the like. Both folders may be the same one, if masks have such a suffix. The mask of one
        image file lies at the top of the folder, or in one place below.
    only_annotated : bool, default=False
        Leave images of a folder without a mask out, instead of refusing them.

    Returns
    -------
    list of Pair
        Stem, image path and mask path, sorted by stem.

    Raises
    ------
    InputError
        If a folder holds no images, an image lacks its mask or a mask its image, an image has two masks, or two files
        of one folder share a stem; the message names all of them. If one mask file is given for a folder of images.
        With `only_annotated`, if no image has a mask.
    """
    faults: list[str] = []
    pairs = match(images, masks, faults, [], only_annotated=only_annotated)
    _raise(faults)
    return pairs


def load_pairs(
    images: str | Path,
    masks: str | Path,
    *,
    labels: Mapping[int, str] | None = None,
    unlabelled: int | None = None,
    masks_are: MasksAre | None = None,
    instances: str | Path | None = None,
    only_annotated: bool = False,
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
        reading=reading,
    )
    _raise(found.faults)
    items, meaning = found.items, found.meaning
    n_channels = common_channels(found.facts.kinds)
    assert meaning.label_map is not None  # or there was a fault to raise
    assert n_channels is not None
    return Dataset(
        stems=[item.stem for item in items],
        files=[item.file for item in items],
        images=[joined(item.around, n_channels) for item in items],
        masks=[meaning.masks[item.stem] for item in items],
        label_map=meaning.label_map,
        messages=found.messages,
        instances=None if meaning.instances is None else [meaning.instances[item.stem] for item in items],
        dtypes=[item.dtype for item in items],
        pixel_sizes=[item.pixel_size for item in items],
        reading=found.reading.note([item.layout for item in items]),
        z_steps=[item.z_step for item in items],
        masks_are=meaning.masks_are,
    )


class Survey(NamedTuple):
    """Images and masks that were read, what they mean, and everything odd or wrong about them."""

    items: list[Item]
    facts: Facts
    meaning: Meaning
    reading: Reading
    messages: list[str]
    faults: list[str]


def survey(
    images: str | Path,
    masks: str | Path,
    options: MaskOptions,
    *,
    instances: str | Path | None = None,
    only_annotated: bool = False,
    reading: Reading | None = None,
    keeps_images: bool = True,
) -> Survey:
    """Read every image with its mask, see `load_pairs`; without `keeps_images` only their masks stay in memory."""
    faults: list[str] = []
    messages: list[str] = []
    pairs = match(images, masks, faults, messages, only_annotated=only_annotated)
    objects = match_instances(images, instances, faults, pairs=pairs if only_annotated else None)
    reading = learnt(reading, [entry.image for entry in pairs], faults)
    read = read_items(pairs, faults, messages, instances=objects, reading=reading)
    is_sparse = only_annotated or reading.context > 0
    items: list[Item] = []
    blank: list[str] = []
    facts = Facts()
    for item in read:
        if is_sparse and _is_blank(item, options.unlabelled):
            blank.append(item.stem)
            continue
        facts.add(item.stem, item.image, item.dtype, item.layout)
        items.append(item if keeps_images else item._replace(image=_NO_IMAGE, around=()))
    if blank:
        messages.append(f"{count(len(blank), 'mask')} without a labelled pixel left out ({first_few(blank)})")
    if reading.range is None:  # else all are scaled alike
        check_scales(facts.scales, faults, messages)
    meaning = _interpret(
        items, facts.kinds, options, faults, messages, has_objects=objects is not None, has_blank=bool(blank)
    )
    messages += describe_copies(facts.digests)
    return Survey(items, facts, meaning, reading, messages, faults)


def learnt(reading: Reading | None, paths: Sequence[Path], faults: list[str]) -> Reading:
    """Replace percentiles by values; if that cannot be done, a fault is added."""
    reading = reading or Reading()
    try:
        return reading.learn(paths)
    except InputError as fault:
        faults.append(str(fault))
        return replace(reading, range="0..1", is_learnt=True)


class Meaning(NamedTuple):
    """Contents of masks, by name: masks of classes, the classes if they are known, and objects if there are any."""

    masks: dict[str, NDArray[Any]]
    label_map: LabelMap | None
    instances: dict[str, NDArray[np.int32]] | None
    masks_are: MasksAre


def _interpret(
    items: Sequence[Item],
    kinds: Mapping[str, Kind],
    options: MaskOptions,
    faults: list[str],
    messages: list[str],
    *,
    has_objects: bool,
    has_blank: bool,
) -> Meaning:
    """Find the classes and objects of masks, and check that images and masks fit together."""
    n_faults = len(faults)
    masks = {item.stem: item.mask for item in items}
    if has_objects:
        if options.masks_are == "instances":
            faults.append(
                "data.instances beside data.masks=instances: objects twice, leave one of the two out"
            )
        options = options._replace(masks_are="classes")
    outlined = {item.stem for item in items if item.is_outlined}
    numbered = find_instances(masks, outlined, faults, messages, options)
    masks_are: MasksAre = "classes" if numbered is None else "instances"
    shown = options.unlabelled
    if numbered is not None:
        masks = {stem: classes_of(numbered[stem], mask, shown) for stem, mask in masks.items()}
        options = MaskOptions(CLASS_NAMES, None if shown is None else UNLABELLED_OBJECT)
    is_sound = len(faults) == n_faults
    values_of = {stem: np.unique(mask).tolist() for stem, mask in masks.items()} if is_sound else {}
    faults += [
        f"{stem}: the name of {n_images} images, a page of a file among them: rename a file"
        for stem, n_images in Counter(item.stem for item in items).items()
        if n_images > 1
    ]
    check_kinds(kinds, faults, messages)
    unlabelled = options.unlabelled
    faults += [
        f"{stem}: mask has no labelled pixel: annotate some, or leave that image out"
        for stem, values in values_of.items()
        if unlabelled is not None and values == [unlabelled]
    ]
    label_map = _infer(values_of, options.labels, unlabelled, faults, is_shown=shown == unlabelled)
    if label_map is not None:
        messages += _of_one_class(values_of, label_map)
        messages += _scribbles(values_of, unlabelled, shown, has_blank=has_blank)
    if has_objects and label_map is not None:
        given = {item.stem: item.instances for item in items if item.instances is not None}
        numbered = check_numbers(given, faults, messages)
        ids_of = {stem: label_map.encode(masks[stem]) for stem in given}
        messages += compare_with_classes(given, ids_of, label_map.names[0])
    return Meaning(masks, label_map, numbered, masks_are)


def match_instances(
    images: str | Path,
    instances: str | Path | None,
    faults: list[str],
    *,
    pairs: Sequence[Pair] | None = None,
) -> dict[str, Path] | None:
    """Match images with files of objects as `pair` does with masks; faults are added to the list."""
    if instances is None:
        return None
    found: list[str] = []
    matched = match(images, instances, found, [], only_annotated=pairs is not None, can_leave_out=False)
    faults += [fault for fault in found if fault not in faults]
    objects = {entry.stem: entry.mask for entry in matched}
    lacking = [entry.stem for entry in pairs or [] if entry.stem not in objects]
    if lacking and not found:
        faults.append(
            f"{count(len(lacking), 'image')} with a mask and without objects of the same name in {instances} "
            f"({first_few(lacking)}): add or rename the objects"
        )
    return objects


def _is_blank(item: Item, unlabelled: int | None) -> bool:
    """Return whether no pixel of a page is labelled."""
    return unlabelled is not None and not item.is_outlined and bool((item.mask == unlabelled).all())


def match(
    images: str | Path,
    masks: str | Path,
    faults: list[str],
    messages: list[str],
    *,
    only_annotated: bool = False,
    can_leave_out: bool = True,
) -> list[Pair]:
    """Match images with masks as `pair` does; faults and notes are added to the lists."""
    images, masks = Path(images), Path(masks)
    if images.is_dir() and masks.is_file() and masks.suffix.lower() == ".json":
        image_of = by_stem(images, faults)
        return _match_coco(
            image_of, masks, faults, messages, only_annotated=only_annotated, can_leave_out=can_leave_out
        )
    if images.is_dir() and masks.is_file():
        faults.append(
            f"{masks}: one mask for the folder {images}, expected a folder of masks: give that folder, or one image"
        )
        return []
    image_of = by_stem(images, faults)
    if images.is_file() and masks.exists():
        return [entry for image in image_of.values() for entry in _pair_file(image, masks, faults)]
    if images.is_dir() and masks.is_dir() and images.samefile(masks):
        image_of, mask_of = part_folder(images, image_of, faults, messages)
        if not mask_of:
            faults.append(
                f"{images} is given for images and masks, and no file is called like NAME_mask beside NAME: "
                f"give the folder of the masks, or rename them"
            )
            return []
    else:
        mask_of = masks_by_stem(masks, image_of, faults, messages)
    found = match_stems(image_of.keys(), mask_of.keys())
    faults += found.faults
    if found.images_among_masks:
        messages.append(
            f"{masks} holds images too ({first_few(found.images_among_masks)}): masks are the files with a suffix"
        )
    if image_of and mask_of and not found.faults:
        used = {*found.mask_of.values(), *found.images_among_masks}
        lonely = sorted(image_of.keys() - found.mask_of.keys())
        if only_annotated and found.mask_of:
            messages += _left_out(lonely, len(image_of))
            lonely = []
        # images are left out beside others with masks only
        offer = can_leave_out and bool(found.mask_of)
        faults += _unpaired(lonely, sorted(mask_of.keys() - used), can_leave_out=offer)
    return [Pair(stem, image_of[stem], mask_of[mask]) for stem, mask in found.mask_of.items()]


def _match_coco(
    image_of: Mapping[str, Path],
    masks: Path,
    faults: list[str],
    messages: list[str],
    *,
    only_annotated: bool,
    can_leave_out: bool,
) -> list[Pair]:
    """Match the images of a folder with the entries of one COCO file."""
    try:
        source = open_objects(masks)
    except InputError as fault:
        faults.append(str(fault))
        return []
    if not isinstance(source, Coco):
        faults.append(
            f"{masks}: objects of one image for a folder of images, expected a COCO file or a folder of masks: "
            f"give that folder, or one image"
        )
        return []
    found = source.match(image_of)
    lonely = sorted(image_of.keys() - found.keys())
    if only_annotated and found:
        messages += _left_out(lonely, len(image_of))
    elif lonely:
        faults.append(
            f"{count(len(lonely), 'image')} without entry in {masks.name} ({first_few(lonely)}): "
            f"annotate or remove the image{_LEAVE_OUT if found and can_leave_out else ''}"
        )
    if others := sorted(set(source.stems) - set(found.values())):
        messages.append(
            f"{masks.name} has {count(len(others), 'entry', 'entries')} without image ({first_few(others)}): left out"
        )
    return [Pair(stem, image_of[stem], masks) for stem in sorted(found)]


def _pair_file(image: Path, masks: Path, faults: list[str]) -> list[Pair]:
    """Match one image with a mask file, or with its mask in a folder: at the top, or in one place below."""
    if masks.is_file():
        if masks.suffix.lower() in OUTLINE_EXTENSIONS:
            return [Pair("", image, masks)]
        return [Pair("", image, path) for [path] in paths_by_stem(masks, faults).values()]
    stem = stem_of(Path(image.name))
    outlines = outlines_of_image(masks, stem)
    paths = {} if outlines and not has_images(masks) else paths_by_stem(masks, faults)
    if not paths and not outlines:
        return []
    own = [
        (name, path)
        for name, same in paths.items()
        for path in same
        if stem in (last := name.rpartition("/")[2], image_name(last)) and not path.samefile(image)
    ] or outlines
    found = [path for name, path in own if "/" not in name] or [path for _, path in own]
    if len(found) == 1:
        return [Pair(stem, image, found[0])]
    if found:
        told = first_few([str(path) for path in found])
        faults.append(
            f"{image}: {len(found)} masks of the name {stem} ({told}), expected one: give that file"
        )
    else:
        faults.append(
            f"{image}: no mask of the name {stem} in {masks}: add or rename it, or give the mask file"
        )
    return []


def _left_out(lonely: Sequence[str], n_images: int) -> list[str]:
    """Describe how many images have a mask, if not all of them; a line, or none."""
    n_masks = n_images - len(lonely)
    verb = "has" if n_masks == 1 else "have"
    told = f"{n_masks} of {count(n_images, 'image')} {verb} a mask; the others are left out"
    return [told] if lonely else []


def _unpaired(images: Sequence[str], masks: Sequence[str], *, can_leave_out: bool) -> list[str]:
    sides = [(images, "image", "mask", _LEAVE_OUT if can_leave_out else ""), (masks, "mask", "image", "")]
    faults = [
        f"{count(len(stems), have)} without {lack} of the same name ({first_few(stems)}): add or rename the {lack}{cure}"
        for stems, have, lack, cure in sides
        if stems
    ]
    added = {mask.removeprefix(image) for image, mask in zip(images, masks, strict=False)}
    if len(images) == len(masks) and len(added) == 1 and not set(masks) & added:
        faults.append(f"every mask's name ends in {added.pop()!r}: take that off")
    return faults


def read_items(
    pairs: Sequence[Pair],
    faults: list[str],
    messages: list[str],
    *,
    instances: Mapping[str, Path] | None = None,
    reading: Reading | None = None,
) -> Iterator[Item]:
    """Read pair after pair; faults and notes are added to the lists, and the next pair is read."""
    reading = reading or Reading()
    reader = MaskReader(messages, axes=reading.axes)
    for entry in pairs:
        drawn = _tried(faults, reader.open, entry.mask)
        objects: Drawn | None = None
        # an image without objects among others is told where files are matched
        path = None if instances is None else instances.get(entry.stem)
        if path is not None:
            objects = _tried(faults, reader.open, path)
        n_masks = len(drawn) if isinstance(drawn, list) else None
        stack = _tried(faults, partial(reading.read, n_masks=n_masks), entry.image)
        if stack is None:
            continue
        sizes = [page.shape[:2] for page in stack.pages]
        read = partial(reader.pages, stem=entry.name, sizes=sizes, image=entry.image)
        masks = None if drawn is None else _tried(faults, read, drawn, entry.mask)
        numbers: Sequence[NDArray[Any] | None] | None = [None] * len(stack.pages)
        if instances is not None:
            numbers = None if objects is None or path is None else _tried(faults, read, objects, path)
        yield from _items(
            entry, stack, masks or [], numbers or [], faults, reading, is_outlined=not isinstance(drawn, list)
        )
    messages += reader.notes()


def _tried(faults: list[str], read: Callable[..., Result], *arguments: Any) -> Result | None:
    """Call a function; None if it raises, and the fault is added to the list."""
    try:
        return read(*arguments)
    except InputError as fault:
        faults.append(str(fault))
        return None


def _items(
    entry: Pair,
    stack: Stack,
    masks: Sequence[NDArray[Any]],
    numbers: Sequence[NDArray[Any] | None],
    faults: list[str],
    reading: Reading,
    *,
    is_outlined: bool,
) -> Iterator[Item]:
    file = entry.name
    size, z_step = _tried(faults, read_pixel_size, entry.image), _tried(faults, read_z_step, entry.image)
    names = page_names(file, len(stack.pages))
    images = [
        _tried(faults, _scaled, page, f"{entry.image}{stem.removeprefix(file)}", reading)
        for stem, page in zip(names, stack.pages, strict=True)
    ]
    for index, stem in enumerate(names):
        image = images[index]
        if image is None or not masks or not numbers:
            continue
        name = f"{entry.image}{stem.removeprefix(file)}"
        own = [("mask", masks[index]), ("label image", numbers[index])]
        wrong = [(kind, one) for kind, one in own if one is not None and one.shape != image.shape[:2]]
        faults += [size_fault(name, image.shape, one.shape, kind=kind) for kind, one in wrong]
        around = _tried(
            faults, partial(neighbours, name=str(entry.image)), stack.layout, index, reading.context
        )
        if around is None:
            return
        planes = [plane for plane in (images[place] for place in around) if plane is not None]
        if not wrong and len(planes) == len(around):
            yield Item(
                stem,
                file,
                image,
                masks[index],
                str(stack.pages[index].dtype),
                is_outlined,
                numbers[index],
                size,
                stack.layout,
                planes,
                z_step,
            )


def _scaled(page: NDArray[Any], name: str, reading: Reading) -> NDArray[np.float32]:
    """Scale a page; refuse one that nothing can be learnt from."""
    image = reading.scale(page, name=name)
    # planes that are blank may lie at the end of a stack
    if not (reading.context and image.min() == image.max()):
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


def _infer(
    values_of: Mapping[str, Sequence[int]],
    labels: Mapping[int, str] | None,
    unlabelled: int | None,
    faults: list[str],
    *,
    is_shown: bool,
) -> LabelMap | None:
    if not values_of and faults:  # no mask could be read, which is a fault told already
        return None
    try:
        return LabelMap.infer(set().union(*values_of.values()), labels=labels, unlabelled=unlabelled)
    except InputError as fault:
        odd = _of_other_values(values_of, unlabelled) if labels is None else None
        values = set().union(*values_of.values())
        is_idle = is_shown and unlabelled is not None and unlabelled not in (values or {unlabelled})
        start = f"no mask holds {unlabelled}, given as data.unlabelled; " if is_idle else ""
        faults.append(f"{start}{odd or fault}")
        return None


def _of_other_values(values_of: Mapping[str, Sequence[int]], unlabelled: int | None) -> str | None:
    """Name the masks whose values differ from the two values of most masks, if there are any."""
    sets = {stem: frozenset(values) - {unlabelled} for stem, values in values_of.items()}
    twos = Counter(found for found in sets.values() if len(found) == 2)
    if not twos:
        return None
    [(usual, _)] = twos.most_common(1)
    odd = [stem for stem, found in sets.items() if not found <= usual]
    if any(usual < found for found in sets.values()):
        return _of_one_value_more(sets, usual)
    if not 0 < len(odd) <= len(sets) / 2:
        return None
    values = [str(value) for value in sorted(set().union(*sets.values()))]
    more = f" and {len(odd) - _N_ODD_NAMED} more" if len(odd) > _N_ODD_NAMED else ""
    one = len(odd) == 1
    return (
        f"masks hold {len(values)} values ({first_few(values)}), without the {'mask' if one else 'masks'} of "
        f"{', '.join(odd[:_N_ODD_NAMED])}{more} only {' and '.join(map(str, sorted(usual)))}: save "
        f"{'it' if one else 'them'} with these two, or name every value, for example "
        f"--set data.labels='{{0: background, 1: cell, 2: border}}', or "
        f"--set data.unlabelled=VALUE if one of them marks unlabelled pixels; "
        f"if they number objects, --set data.masks=instances"
    )


def _of_one_value_more(sets: Mapping[str, frozenset[int]], usual: frozenset[int]) -> str | None:
    """Ask about a third value that some masks hold beside the usual two: unlabelled pixels, or a rare class."""
    more = frozenset[int]().union(*sets.values()) - usual
    if len(more) != 1:
        return None
    [value] = more
    holders = [stem for stem, found in sets.items() if value in found]
    low, high = sorted(usual)
    labels = ", ".join(f"{entry}: NAME" for entry in sorted((low, high, value)))
    told = first_few(holders, most=_N_ODD_NAMED)
    return (
        f"masks hold {low} and {high}, and {value} in {count(len(holders), 'mask')} ({told}): "
        f"if {value} marks pixels nobody annotated, --set data.unlabelled={value}; "
        f"if it is a class, name all, --set data.labels='{{{labels}}}'; "
        f"if they number objects, --set data.masks=instances"
    )


def _raise(faults: Sequence[str]) -> None:
    if len(faults) == 1:
        raise InputError(faults[0])
    if faults:
        raise InputError(f"{len(faults)} faults: {first_few(group_faults(faults), separator='; ')}")
