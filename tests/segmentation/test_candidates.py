import numpy as np
import pytest

from segkit.classifier.svm import LinearSVM
from segkit.features import MultiscaleBank
from segkit.images.sampling import draw_pixels
from segkit.kernels import LinearGaussianMixture
from segkit.segmentation.candidates import Candidate, Trial, best_index, can_be_compared
from segkit.segmentation.held_out import Choice, Recipe
from segkit.selection import MMDSelector


def candidate(mean_iou, n_regions=2):
    summary = {"mean_iou": mean_iou, "n_regions": n_regions}
    choice = None if mean_iou is None else Choice(1e-3, 0.0, 0.0, None, None, summary)
    return Candidate(MultiscaleBank(), None, None, np.arange(0), choice, None, {})


@pytest.fixture
def trial(rng):
    masks = [np.zeros((24, 30), dtype=np.intp) for _ in range(3)]
    for place, mask in enumerate(masks):
        mask[4 + place : 14, 5:20] = 1
    images = [
        (0.5 * mask + 0.1 * rng.standard_normal(mask.shape)).astype(np.float32)[:, :, None] for mask in masks
    ]
    drawn, training = (draw_pixels(masks, 2, n_pixels, rng) for n_pixels in (200, 300))
    recipe = Recipe(MMDSelector(5), LinearGaussianMixture(n_components=24, random_state=0), LinearSVM())
    return Trial(
        images,
        drawn,
        training,
        recipe=recipe,
        normalization="set",
        penalties=[1e-2, 1e-3],
        threshold="quantile",
        n_classes=2,
        judges=True,
    )


@pytest.mark.parametrize(
    ("scores", "best"), [([0.5, 0.7, 0.6], 1), ([0.6, 0.6], 0), ([0.4], 0), ([None, None], 0)]
)
def test_the_highest_score_is_best_and_of_equals_the_first(scores, best):
    assert best_index([candidate(score) for score in scores]) == best


def test_it_takes_two_candidates_and_two_images_to_compare():
    assert can_be_compared([candidate(0.5), candidate(0.6)])
    assert not can_be_compared([candidate(0.5)])
    assert not can_be_compared([candidate(None), candidate(None)])
    blocks = [candidate(0.5, n_regions=1), candidate(0.6, n_regions=1)]
    assert not can_be_compared(blocks)
    assert best_index(blocks) == 0


def test_a_bank_is_sampled_selected_and_judged(trial):
    bank = MultiscaleBank(sigma_max=2)
    found = trial.of(bank, lambda items, _: items)
    drawn, training = (
        np.concatenate([bank.sample(image, *at) for image, at in zip(trial.images, places, strict=True)])
        for places in (
            [(sample.row[part], sample.col[part]) for part in map(sample.of_image, range(3))]
            for sample in (trial.drawn, trial.training)
        )
    )
    selector = MMDSelector(5).fit(drawn, trial.drawn.label, groups=trial.drawn.image)
    np.testing.assert_array_equal(found.kept, selector.get_support(indices=True))
    np.testing.assert_array_equal(found.X, training[:, found.kept])
    assert found.kernels.gaussian_columns.all()  # each channel has a value at each pixel
    assert 0.5 < found.mean_iou <= 1
    assert found.choice.summary["n_regions"] == 3
    assert set(found.seconds) == {"select", "calibrate"}


def test_trials_do_not_change_the_recipe(trial):
    first, again = (trial.of(MultiscaleBank(sigma_max=2), lambda items, _: items) for _ in range(2))
    assert trial.recipe.kernels.gaussian_columns is None
    assert not hasattr(trial.recipe.selector, "scores_")
    assert first.mean_iou == again.mean_iou
