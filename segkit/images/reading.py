"""How image files are read: the names of their axes, the range of their values, the planes around each plane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit._common import is_whole
from segkit.errors import InputError
from segkit.images.alike import with_channels
from segkit.images.axes import Layout, Stack, check_axes
from segkit.images.read import check_finite, image_from_page, read_stack

_MOST_CONTEXT = 100
_WORD = "percentiles"
_FORMS = "give LOW..HIGH, such as 0..4095, or percentiles: LOW..HIGH, such as percentiles: 1..99"
# Share of the pixels of a file that may lie outside of a stated range: hot pixels, not another scale.
_MOST_OUTSIDE = 0.01
# Values of each page that percentiles are computed from.
_MOST_VALUES = 100_000


@dataclass(frozen=True)
class Reading:
    """How image files are read.

    Parameters
    ----------
    axes : str, optional
        Names of the axes of files, such as ``"CYX"`` or ``"TCZYX"``: T (time), Z (depth) and P (positions) are unrolled
        into planes, C and S (colours) are channels. They count for every TIFF of so many axes. By default, and in other
        files, the metadata of the file tell; where they do not, an error asks.
    range : str, optional
        Values that are read as 0 and 1: ``"0..4095"``, or ``"percentiles: 1..99"`` of the training images, the same for all
        images and channels. Values outside are cut. By default the range of the type; int32 and floats beyond
        [0, 1] have none.
    context : int, default=0
        Number of neighbouring planes on either side that are further channels of each plane of a stack. The first and
        the last plane repeat.
    unnamed : str, optional
        Axes of files that name none, as the masks of a training told. `load_pairs` sets it.
    is_learnt : bool, default=False
        Whether the range is that of percentiles. `load_pairs` sets it.
    channels : tuple of str, default=()
        Names of the channels of the training images. `load_pairs` sets it.
    selected : tuple of str, default=()
        Channels that are read, in this order: their names in the file, or their numbers from 1. All by default.

    Raises
    ------
    InputError
        If axes, range, context or selected channels make no sense.

    Examples
    --------
    >>> from segkit.images import Reading
    >>> reading = Reading(axes="zyx", range="0..4095", context=1)
    >>> reading.axes, reading.limits, reading.n_planes
    ('ZYX', (0.0, 4095.0), 3)
    """

    axes: str | None = None
    range: str | None = None
    context: int = 0
    unnamed: str | None = None
    is_learnt: bool = False
    channels: tuple[str, ...] = ()
    selected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("axes", "unnamed"):
            if (axes := getattr(self, name)) is not None:
                object.__setattr__(self, name, check_axes(axes))
        if self.range is not None:
            parse_range(self.range)
        if not is_whole(self.context, least=0) or self.context > _MOST_CONTEXT:
            raise InputError(
                f"context {self.context!r}: give a whole number of planes on either side, 0 to {_MOST_CONTEXT}"
            )
        object.__setattr__(self, "context", int(self.context))
        if len({name.casefold() for name in self.selected}) < len(self.selected) or not all(self.selected):
            raise InputError(
                f"channels {', '.join(self.selected)}: give each of them once, such as DAPI,GFP or 1,3"
            )

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Reading:
        """Restore what `dataclasses.asdict` gave and JSON has kept."""
        return cls(**{**entries, **{name: tuple(entries[name]) for name in ("channels", "selected")}})

    @property
    def n_planes(self) -> int:
        """Number of planes whose channels an image holds."""
        return 2 * self.context + 1

    @property
    def limits(self) -> tuple[float, float] | None:
        """Values that are read as 0 and 1; None for the range of the type, and for percentiles until they are known."""
        if self.range is None or self.range.startswith(_WORD):
            return None
        return parse_range(self.range)

    def read(self, path: Path, *, n_masks: int | None = None) -> Stack:
        """Read the pages of a file, and check that they lie within a stated range.

        Raises
        ------
        InputError
            As `read_stack`, if many values lie outside of the range, and if a selected channel is not there.
        """
        stack = read_stack(path, axes=self.axes, unnamed=self.unnamed, n_masks=n_masks)
        stack = select_channels(stack, self.selected, name=str(path))
        if self.limits is not None and not self.is_learnt:
            _check_within(stack, self.limits, name=str(path))
        return stack

    def note(self, layouts: Iterable[Layout]) -> Reading:
        """Note what training files told: axes that only masks name, and names of channels, if all agree."""
        layouts = list(layouts)
        unnamed = {layout.told for layout in layouts if layout.told}
        channels = {layout.channels for layout in layouts}
        return replace(
            self,
            unnamed=unnamed.pop() if len(unnamed) == 1 else self.unnamed,
            channels=channels.pop() if len(channels) == 1 else (),
        )

    def in_context(
        self, images: Sequence[NDArray[np.float32]], layout: Layout, n_channels: int, *, name: str
    ) -> list[NDArray[np.float32]]:
        """Convert images to so many channels, and add those of the planes around each."""
        around = [neighbours(layout, page, self.context, name=name) for page in range(len(images))]
        return [joined([images[place] for place in places], n_channels) for places in around]

    def scale(self, page: NDArray[Any], *, name: str) -> NDArray[np.float32]:
        """Scale a page to [0, 1]; (H, W, C) float32.

        Raises
        ------
        InputError
            If the type has no range, or many values lie outside of the stated one.
        """
        if self.range is None:
            return image_from_page(page, name=name)
        if self.limits is None:
            raise InputError(
                f"range {self.range} is of training images: train, or give LOW..HIGH", source=name
            )
        return scale_between(page, *self.limits, name=name)

    def learn(self, paths: Sequence[Path]) -> Reading:
        """Replace percentiles by the values that they are in these images; files that cannot be read are left out."""
        if self.range is None or not self.range.startswith(_WORD):
            return self
        low, high = parse_range(self.range)
        drawn = [values for path in paths for values in self._values(path)]
        if not drawn:  # each is told of where it is read
            return replace(self, range="0..1", is_learnt=True)
        first, last = np.percentile(np.concatenate(drawn), (low, high)).tolist()
        if not first < last:
            raise InputError(
                f"data.range={self.range}: these percentiles of the training images are both {first:g}: {_FORMS}"
            )
        return replace(self, range=f"{first!r}..{last!r}", is_learnt=True)

    def _values(self, path: Path) -> list[NDArray[np.float64]]:
        try:
            stack = read_stack(path, axes=self.axes, unnamed="any" if self.axes is None else None)
            pages = select_channels(stack, self.selected, name=str(path)).pages
        except InputError:
            return []
        some = [page.ravel()[:: max(1, page.size // _MOST_VALUES)].astype(np.float64) for page in pages]
        return [values[np.isfinite(values)] for values in some]


def parse_range(text: str) -> tuple[float, float]:
    """Read LOW and HIGH of a range, or of percentiles."""
    words = str(text).strip()
    is_percentiles = words.startswith(_WORD)
    numbers = words.removeprefix(_WORD).lstrip(": ") if is_percentiles else words
    try:
        low, high = (float(number) for number in numbers.split(".."))
    except ValueError:
        raise InputError(f"range {text}: {_FORMS}") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"range {text}: {low:g} is not below {high:g}: {_FORMS}")
    if is_percentiles and not (low >= 0 and high <= 100):
        raise InputError(f"range {text}: percentiles go from 0 to 100: {_FORMS}")
    return low, high


def scale_between(page: NDArray[Any], low: float, high: float, *, name: str) -> NDArray[np.float32]:
    """Scale a page so that two values become 0 and 1, and cut those outside; (H, W, C) float32."""
    if page.dtype.kind not in "buif":
        raise InputError(
            f"pixels are {page.dtype}, expected whole numbers or floats: convert it", source=name
        )
    values = page.astype(np.float64)
    check_finite(values, name)
    scaled = ((values - low) / (high - low)).clip(0, 1).astype(np.float32)
    return scaled[:, :, None] if scaled.ndim == 2 else scaled


def _check_within(stack: Stack, limits: tuple[float, float], *, name: str) -> None:
    """Refuse a file of which many values lie outside of the range that was stated."""
    low, high = limits
    n_values = sum(page.size for page in stack.pages)
    outside = sum(np.count_nonzero((page < low) | (page > high)) for page in stack.pages)
    if outside > _MOST_OUTSIDE * n_values:
        least, most = min(page.min() for page in stack.pages), max(page.max() for page in stack.pages)
        raise InputError(
            f"{outside / n_values:.0%} of its values lie outside of data.range={low:g}..{high:g} (they go from "
            f"{least:g} to {most:g}): give the range of the instrument, or percentiles: 1..99",
            source=name,
        )


def select_channels(stack: Stack, selected: Sequence[str], *, name: str) -> Stack:
    """Keep some channels of a stack, by name or by number from 1."""
    if not selected:
        return stack
    numbers = {np.atleast_3d(page).shape[2] for page in stack.pages}
    if len(numbers) > 1:
        raise InputError("pages of different numbers of channels: save them as separate files", source=name)
    (n_channels,) = numbers
    # of colours of a channel, only the channel has a name
    known = stack.layout.channels if len(stack.layout.channels) == n_channels else ()
    there = "it has one channel" if n_channels == 1 else f"it has channels 1 to {n_channels}"
    there += f" ({', '.join(known)})" if known else ""
    places = []
    for wanted in selected:
        fitting = [place for place, own in enumerate(known) if own.casefold() == wanted.casefold()]
        if len(fitting) > 1:
            raise InputError(
                f"{len(fitting)} channels {wanted}, {there}: give the number (data.channels)", source=name
            )
        place = fitting[0] if fitting else int(wanted) - 1 if wanted.isdecimal() else -1
        if not 0 <= place < n_channels:
            raise InputError(
                f"no channel {wanted}, {there}: give those that are there (data.channels)", source=name
            )
        places.append(place)
    if len(set(places)) < len(places):
        raise InputError(f"channels {', '.join(selected)}: give each of them once, {there}", source=name)
    pages = [np.atleast_3d(page)[:, :, places] for page in stack.pages]
    pages = [page[:, :, 0] if len(places) == 1 else page for page in pages]
    layout = stack.layout._replace(channels=tuple(known[place] for place in places) if known else ())
    return Stack(pages, layout, stack)


def joined(planes: Sequence[NDArray[np.float32]], n_channels: int) -> NDArray[np.float32]:
    """Join the channels of planes, read with so many channels each, in order of depth."""
    images = [with_channels(plane, n_channels) for plane in planes]
    return images[0] if len(images) == 1 else np.concatenate(images, axis=2)


def neighbours(layout: Layout, page: int, context: int, *, name: str) -> list[int]:
    """Return the pages around a page of a stack, and itself, in order of depth; the first and the last plane repeat."""
    if not context:
        return [page]
    axis = layout.axes.find("Z")
    if axis < 0:
        has, if_planes = "it is a single plane", "=ZYX, if its channels are planes"
        if layout.axes:
            has, if_planes = (
                f"its axes are {layout.axes}YX",
                f", with Z for {layout.axes[-1]}, if that is depth",
            )
        raise InputError(
            f"data.context={context} needs the planes of a stack (axis Z), {has}: give stacks (--set data.axes{if_planes}), "
            "or leave data.context out",
            source=name,
        )
    places = np.array(np.unravel_index(page, layout.shape))
    found = []
    for step in range(-context, context + 1):
        at = places.copy()
        at[axis] = np.clip(places[axis] + step, 0, layout.shape[axis] - 1)
        found.append(int(np.ravel_multi_index(tuple(at), layout.shape)))
    return found
