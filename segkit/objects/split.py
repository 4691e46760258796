"""Objects that touch told apart, by watershed on a landscape that is high inside objects and low between them.

Lengths and depths are measured in radii of a typical object, so that settings carry over from one magnification to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from scipy.special import softmax

from segkit._common import FloatArray
from segkit._common.arrays import as_array
from segkit.errors import ConfigError, InputError
from segkit.objects.hills import Hills, LabelArray, find_hills, join_hills

Landscape = Literal["none", "distance", "probability", "inside", "distance+inside"]
LANDSCAPES: tuple[Landscape, ...] = get_args(Landscape)
# What to split more or less does to the depth.
_CHANGES = {"more": 0.5, "less": 2.0}
# Holes up to this fraction of a typical object are filled.
LARGEST_HOLE = 0.5
# Standard deviations that a Gaussian is cut off at.
_TRUNCATE = 4.0
# Largest standard deviation in pixels: the time of a filter grows with it.
_MOST_DEVIATION = 1024


@dataclass(frozen=True)
class Splitter:
    """How objects that touch are told apart.

    Parameters
    ----------
    landscape : {"none", "distance", "probability", "inside", "distance+inside"}
        Landscape of the watershed: the distance from the edge in radii, the probability of the foreground, the
        depth inside an object, 0 at its edge and 1 in its core (learnt from annotated objects), or the sum of distance and
        inside.
        "none": the regions are the objects.
    smoothing : float, default=0.1
        Standard deviation of a Gaussian over the landscape, in radii.
    depth : float, default=0.1
        Objects whose landscape rises less than this above the pass to a higher one are joined with it.
    radius : float, default=10.0
        Radius of a disc of a typical object's area, in pixels.
    least_area : float, default=0.0
        Smaller objects are left out; in pixels.
    cut_share : float, default=1.0
        Objects that the border of the image cuts are left out below this share of the least area.
    fills_holes : bool, default=True
        Whether holes of up to half the area of a typical object are filled.
    least_probability : float, default=0.0
        Objects whose probability of the foreground is lower in the mean are left out.
    """

    landscape: Landscape = "distance"
    smoothing: float = 0.1
    depth: float = 0.1
    radius: float = 10.0
    least_area: float = 0.0
    cut_share: float = 1.0
    fills_holes: bool = True
    least_probability: float = 0.0

    def __post_init__(self) -> None:
        if self.landscape not in LANDSCAPES:
            raise ConfigError(f"landscape={self.landscape!r}: choose one of {', '.join(LANDSCAPES)}")
        for name in ("smoothing", "depth", "radius", "least_area", "cut_share"):
            if not 0 <= getattr(self, name) < np.inf or (name == "radius" and not self.radius):
                least = "above 0" if name == "radius" else "from 0"
                raise ConfigError(f"{name}={getattr(self, name)!r}: give a number {least}")
        if not 0 <= self.least_probability <= 1:
            raise ConfigError(f"least_probability={self.least_probability!r}: give a number from 0 to 1")
        if self.smoothing * self.radius > _MOST_DEVIATION:
            raise ConfigError(
                f"smoothing={self.smoothing:g} of radius={self.radius:g}: a Gaussian of {self.smoothing * self.radius:,.0f} "
                f"pixels, at most {_MOST_DEVIATION:,} make sense"
            )

    @property
    def needs_inside(self) -> bool:
        """Whether it needs the learnt depth inside objects."""
        return "inside" in self.landscape

    @property
    def needs_probability(self) -> bool:
        """Whether it needs the probability of the foreground."""
        return self.landscape == "probability" or self.least_probability > 0

    @property
    def is_learnt(self) -> bool:
        """Whether its landscape is learnt, not computed from the mask alone."""
        return self.landscape not in ("none", "distance")

    @property
    def needs_distance(self) -> bool:
        """Whether it needs the distance from the edge."""
        return "distance" in self.landscape

    def split(
        self, mask: ArrayLike, *, probability: ArrayLike | None = None, inside: ArrayLike | None = None
    ) -> LabelArray:
        """Split a mask into objects.

        Parameters
        ----------
        mask : array-like of shape (H, W), bool or int
            Foreground, or class ids with 0 for the background. Objects of different classes are never joined.
        probability, inside : array-like of shape (H, W), float, optional
            Probability of the foreground, and depth inside an object, where they are needed.

        Returns
        -------
        ndarray of shape (H, W), int32
            0 for the background, objects 1 to n in reading order.

        Raises
        ------
        InputError
            If an array that is needed is missing, of another shape, or not finite.
        """
        return split_alike([self], mask, probability=probability, inside=inside)[0]

    def _find_hills(self, ids: NDArray[Any], **others: ArrayLike | None) -> Hills:
        """Find the hills of the landscape, whatever the depth."""
        learnt = self._learnt_landscape(ids.shape, **others)
        filled = self.fill(ids)
        regions = [filled == class_id for class_id in np.unique(ids[ids > 0])]
        parts = [find_hills(self.landscape_over(region, learnt), region) for region in regions]
        return join_hills(parts, ids.shape)

    def _learnt_landscape(self, shape: tuple[int, ...], **learnt: ArrayLike | None) -> FloatArray:
        """Sum the landscapes that are given, not computed from the mask."""
        land = np.zeros(shape, dtype=np.float32)
        for name, values in learnt.items():
            if name in self.landscape:
                if values is None:
                    raise InputError(f"landscape {self.landscape!r} without {name}: give {name}=, (H, W)")
                land += np.asarray(values, dtype=np.float32)
        return land

    @property
    def largest_hole(self) -> float:
        """Area up to which holes are filled, in pixels; 0 if none are."""
        return LARGEST_HOLE * np.pi * self.radius**2 if self.fills_holes else 0.0

    @property
    def reach(self) -> int:
        """Number of pixels on each side that the smoothing of a landscape sees."""
        if self.landscape == "none":
            return 0
        return int(_TRUNCATE * self.smoothing * self.radius + 0.5)

    def fill(self, ids: NDArray[np.integer]) -> NDArray[np.integer]:
        """Give small holes to the class around them; one that holds pixels of other classes is none."""
        filled = ids.copy()
        if self.fills_holes:
            for class_id in np.unique(ids[ids > 0]):
                region = ids == class_id
                filled[fill_holes(region, self.largest_hole, (ids > 0) & ~region)] = class_id
        return filled

    def landscape_over(self, region: NDArray[np.bool_], learnt: FloatArray) -> FloatArray:
        """Make the landscape over a region of a class, with what is learnt."""
        land = learnt
        if self.needs_distance and not region.all():  # without an edge there is no distance
            land = land + (ndimage.distance_transform_edt(region) / self.radius).astype(np.float32)
        if self.reach:
            reach = min(self.reach, max(land.shape))  # beyond the image its mirror images repeat
            land = ndimage.gaussian_filter(land, self.smoothing * self.radius, radius=reach)
        return land

    def _keep(self, labels: LabelArray, probability: ArrayLike | None) -> LabelArray:
        """Leave out objects that are too small or too doubtful, and number the others anew."""
        areas = np.bincount(labels.ravel(), minlength=1)
        totals: NDArray[np.float64] | None = None
        if self.least_probability:
            if probability is None:
                raise InputError(f"least_probability={self.least_probability:g}: give probability=, (H, W)")
            sums = np.bincount(labels.ravel(), np.ravel(np.asarray(probability)), minlength=1)
            totals = sums.astype(np.float64)
        is_cut = np.zeros(areas.size, dtype=bool)
        for edge in (labels[:1], labels[-1:], labels[:, :1], labels[:, -1:]):
            is_cut[edge] = True
        kept = self.keeps(areas, is_cut, totals)
        kept[0] = False
        return np.where(kept, np.cumsum(kept, dtype=np.int32), 0)[labels]

    def keeps(
        self,
        areas: NDArray[np.integer],
        is_cut: NDArray[np.bool_],
        totals: NDArray[np.float64] | None = None,
    ) -> NDArray[np.bool_]:
        """Tell which objects are kept, by area, whether the border of the image cuts them, and sum of probabilities."""
        is_large = np.asarray(areas >= self.least_area * np.where(is_cut, self.cut_share, 1))
        return is_large if totals is None else is_large & (totals >= self.least_probability * areas)

    def describe(self) -> str:
        """Describe in one sentence how objects are told apart."""
        size = f"typical radius {self.radius:.3g} pixels"
        if self.least_probability:
            size += f"; objects of a mean probability below {self.least_probability:g} are left out"
        if self.landscape == "none":
            return f"each connected region is one object ({size})"
        names = {
            "distance": "distance from the edge",
            "inside": "learnt inside of objects",
            "probability": "probability",
        }
        told = " and ".join(names[name] for name in self.landscape.split("+"))
        return f"watershed on {told}, smoothed by {self.smoothing:g} radii, at least {self.depth:g} deep ({size})"

    def changed(
        self,
        split: str | float | None = None,
        *,
        smallest: float | None = None,
        fill_holes: bool | None = None,
        least_probability: float | None = None,
    ) -> Self:
        """Change settings by hand.

        Parameters
        ----------
        split : {"more", "less"} or float, optional
            Split more or fewer objects, by half or twice the depth, or the depth itself in radii. Where regions are the
            objects, a depth and "more" split them by their shape, and "less" changes nothing.
        smallest : float, optional
            Least area of an object, in pixels.
        fill_holes : bool, optional
            Whether small holes are filled.
        least_probability : float, optional
            Least mean probability of an object; 0 leaves none out.

        Raises
        ------
        ConfigError
            If `split` is no such word or number, or a number is negative.
        """
        found: dict[str, Any] = {}
        if split is not None:
            depth = self._depth_of(split)
            if self.landscape != "none":
                found["depth"] = depth
            elif str(split).lower() != "less":
                found |= {"depth": depth, "landscape": "distance"}
        if smallest is not None:
            found |= {"least_area": float(smallest), "cut_share": 1.0}
        if fill_holes is not None:
            found["fills_holes"] = fill_holes
        if least_probability is not None:
            found["least_probability"] = float(least_probability)
        return replace(self, **found)

    def _depth_of(self, split: str | float) -> float:
        usual = self.depth if self.landscape != "none" and self.depth else Splitter.depth
        if isinstance(split, str) and split.lower() in _CHANGES:
            return usual * _CHANGES[split.lower()]
        try:
            depth = float(split)
        except ValueError:
            depth = np.nan
        if not 0 <= depth < np.inf:
            raise ConfigError(
                f"split {split!r}: give more, less, or the depth of the valley between two objects in radii, such as 0.1"
            )
        return depth

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_dict` gave."""
        return cls(**stored)


def split(
    mask: ArrayLike,
    splitter: Splitter | None = None,
    *,
    probability: ArrayLike | None = None,
    inside: ArrayLike | None = None,
) -> LabelArray:
    """Split a mask into objects, those that touch too.

    Parameters
    ----------
    mask : array-like of shape (H, W), bool or int
        Foreground, or class ids with 0 for the background.
    splitter : Splitter, optional
        Settings. Without them: watershed on the distance from the edge, for objects as large as the median region.
    probability, inside : array-like of shape (H, W), float, optional
        Further landscapes, if the splitter uses them.

    Returns
    -------
    ndarray of shape (H, W), int32
        0 for the background, objects 1 to n in reading order.

    Raises
    ------
    InputError
        If arrays are not (H, W), shapes differ, or a landscape is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> rows, cols = np.indices((20, 35))
    >>> mask = (np.hypot(rows - 10, cols - 10) < 8) | (np.hypot(rows - 10, cols - 24) < 8)
    >>> int(split(mask).max())
    2
    """
    if splitter is None:
        areas = np.bincount(Splitter("none", fills_holes=False).split(mask).ravel())[1:]
        splitter = replace(Splitter(), radius=radius_of(areas) if areas.size else 1.0)
    return splitter.split(mask, probability=probability, inside=inside)


def split_alike(
    splitters: Sequence[Splitter],
    mask: ArrayLike,
    *,
    probability: ArrayLike | None = None,
    inside: ArrayLike | None = None,
) -> list[LabelArray]:
    """Split a mask by each of some splitters, which differ in depth, areas and least probability only; see `split`."""
    ids = _checked(mask, probability=probability, inside=inside)
    hills = splitters[0]._find_hills(ids, probability=probability, inside=inside)
    return [splitter._keep(hills.merge(splitter.depth), probability) for splitter in splitters]


def radius_of(areas: ArrayLike) -> float:
    """Radius of a disc of the median area, in pixels."""
    return float(np.sqrt(np.median(np.asarray(areas)) / np.pi))


def fill_holes(mask: NDArray[np.bool_], largest: float, blocked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Fill holes up to an area in pixels; a hole does not reach the border, and holds no blocked pixel."""
    holes = ndimage.label(np.pad(~mask, 1, constant_values=True))[0]
    areas = np.bincount(holes.ravel())
    filled = areas <= largest
    # 0 is the mask itself, and the ground around everything holds the corner
    filled[[0, holes[0, 0]]] = False
    holes = holes[1:-1, 1:-1]
    filled[np.unique(holes[blocked])] = False
    return np.asarray(mask | filled[holes])


def _checked(mask: ArrayLike, **others: ArrayLike | None) -> NDArray[Any]:
    """Check that a mask is (H, W) of class ids, and that other arrays fit."""
    ids = as_array(mask, name="mask")
    if ids.ndim != 2 or not (ids.dtype == bool or np.issubdtype(ids.dtype, np.integer)):
        raise InputError(f"mask of shape {ids.shape} and dtype {ids.dtype}: give (H, W) of bool or int")
    for name, values in others.items():
        if values is not None and np.shape(values) != ids.shape:
            raise InputError(
                f"{name} of shape {np.shape(values)} for a mask of {ids.shape}: give the same size"
            )
        if values is not None and not np.isfinite(values).all():
            raise InputError(f"{name} with NaN or infinite values: give finite ones")
    if ids.size and ids.min() < 0:
        raise InputError(f"mask with negative values, down to {ids.min()}: give class ids from 0")
    return ids.astype(np.intp)


def expected_depth(decisions: FloatArray) -> FloatArray:
    """Mean depth, 0 to 1, by the decisions for background and parts of objects from the rim to the core; (H, W)."""
    share = softmax(2 * decisions, axis=2)
    return np.asarray(share @ np.linspace(0, 1, decisions.shape[2]), dtype=np.float32)
