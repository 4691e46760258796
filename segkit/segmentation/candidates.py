"""Banks to choose from: of each, channels are selected, and judged on training images that are held out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from segkit._common import FloatArray, Progress
from segkit.features import FilterBank
from segkit.features.normalised import CentredBank
from segkit.images.sampling import PixelSample, assign_folds, pixel_groups
from segkit.kernels import KernelMixture
from segkit.segmentation.held_out import Choice, IntArray, Recipe, fit_grouped, hold_out

N_FOLDS = 5
# Bytes that all channels of all pixels may take.
MEMORY_LIMIT = 2**28
# Strides of maps are read off a corner of so many rows and columns.
CORNER = 128


@dataclass(frozen=True, eq=False)
class Candidate:
    """A fitted bank, and what was chosen of it and for it.

    Parameters
    ----------
    bank : FilterBank
        Fitted.
    selector : estimator
        Fitted.
    kernels : KernelMixture
        For the channels kept, not fitted.
    kept : ndarray of shape (n_kept,), int
        Channels kept.
    choice : Choice or None
        What held-out images speak for; None if none was asked, or no class could be held out.
    X : ndarray of shape (n, n_kept), float32, or None
        Kept channels of the training pixels, if they were sampled.
    seconds : dict of str to float
        What each step took.
    """

    bank: FilterBank
    selector: Any
    kernels: KernelMixture
    kept: NDArray[np.intp]
    choice: Choice | None
    X: FloatArray | None
    seconds: dict[str, float]

    @property
    def mean_iou(self) -> float:
        """Mean IoU of held-out images or blocks; NaN without any."""
        return float("nan") if self.choice is None else float(self.choice.summary["mean_iou"])


@dataclass(frozen=True, eq=False)
class Trial:
    """Pixels and a recipe that are the same for every bank.

    Parameters
    ----------
    images : sequence of ndarray of shape (H, W, C), float32
        Training images.
    drawn : PixelSample
        Pixels that channels are selected on, and judged on.
    training : PixelSample
        Pixels that are learnt from later, sampled in the same pass if memory allows.
    recipe : Recipe
        Selector, kernels and classifier, not fitted.
    normalization : {"image", "set"}
        As for `CentredBank`.
    penalties : sequence of float
        Values of lambda (eq. 7.17) to judge, falling.
    threshold : str
        Rule of the threshold, as for `HeldOut.choose`.
    n_classes : int
        Number of classes.
    judges : bool
        Whether images are held out at all.
    """

    images: Sequence[FloatArray]
    drawn: PixelSample
    training: PixelSample
    recipe: Recipe
    normalization: str
    penalties: Sequence[float]
    threshold: str
    n_classes: int
    judges: bool

    def of(self, bank: FilterBank, progress: Progress) -> Candidate:
        """Fit a bank, select its channels, and judge them."""
        start = time.perf_counter()
        drawn, training = self.drawn, self.training
        centred = CentredBank(bank.fit(self.images), self.normalization)
        n_channels = bank.n_channels(self._n_image_channels)
        # one pass over the images instead of two, where all channels of all pixels fit
        at_once = 4 * n_channels * (drawn.label.size + training.label.size) <= MEMORY_LIMIT
        X, *later = centred.sample_draws(
            self.images, [drawn, training] if at_once else [drawn], None, progress, "Filter bank"
        )
        groups = pixel_groups(drawn, self._shapes)
        selector = fit_grouped(clone(self.recipe.selector), X, drawn.label, groups)
        kept = selector.get_support(indices=True)
        kernels = clone(self.recipe.kernels)
        gaussian = self._gaussian_columns(kernels, bank, kept)
        selected = time.perf_counter()
        recipe = replace(self.recipe, kernels=kernels, gaussian=gaussian)
        choice = self._judge(X, groups, recipe, progress) if self.judges else None
        seconds = {"select": selected - start, "calibrate": time.perf_counter() - selected}
        X_training = later[0].take(kept, axis=1) if at_once else None
        return Candidate(bank, selector, kernels, kept, choice, X_training, seconds)

    def _judge(self, X: FloatArray, groups: IntArray, recipe: Recipe, progress: Progress) -> Choice | None:
        fold = assign_folds(self.drawn, self._shapes, N_FOLDS)
        held_out = hold_out(X, self.drawn, groups, fold, recipe, self.penalties, self.n_classes, progress)
        return held_out.choose(self.threshold) if held_out.has_all_classes else None

    def _gaussian_columns(
        self, kernels: Any, bank: FilterBank, kept: NDArray[np.intp]
    ) -> NDArray[np.bool_] | None:
        """Of all channels those that Gaussians see: if the kernels leave it open, those with a value at each pixel."""
        if not hasattr(kernels, "gaussian_columns"):
            return None
        seen = np.zeros(bank.n_channels(self._n_image_channels), dtype=bool)
        if kernels.gaussian_columns is None:
            for stack in bank.maps(self.images[0][:CORNER, :CORNER]):
                seen[stack.indices] = stack.stride == 1
            kernels.set_params(gaussian_columns=seen[kept])
        else:
            wanted = np.asarray(kernels.gaussian_columns)
            if wanted.shape == kept.shape:  # else the kernels say what is wrong with it
                seen[kept] = wanted
        return seen

    @property
    def _n_image_channels(self) -> int:
        return int(self.images[0].shape[2])

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        return [image.shape[:2] for image in self.images]


def can_be_compared(candidates: Sequence[Candidate]) -> bool:
    """Tell whether there are several candidates, and two images or more were held out."""
    choice = candidates[0].choice
    return len(candidates) > 1 and choice is not None and choice.summary["n_regions"] > 1


def best_index(candidates: Sequence[Candidate]) -> int:
    """Give the place of the highest mean IoU on held-out images; the first of equals, and where none can be compared.

    Chance is not asked about, as it is for penalties: all banks are good guesses, and none is the usual one.
    """
    if not can_be_compared(candidates):
        return 0
    return int(np.argmax([candidate.mean_iou for candidate in candidates]))
