import itertools
import json

import numpy as np
import pytest
from scipy import ndimage
from sklearn.base import clone

from segkit import OrbitBank
from segkit.errors import ConfigError, InputError
from segkit.features import bank_from_dict, bank_to_dict
from segkit.features.orbit import Disc
from segkit.invariance import (
    Composition,
    Dihedral,
    FourierEmbedding,
    Reflection,
    Rotation,
    Scaling,
    StepEmbedding,
    Translation,
)
from segkit.kernels import Gaussian, Laplacian

EMBEDDINGS = [
    {},
    {"nonlinearity": "step", "thresholds": (-0.5, 0.5)},
    {"templates": "patches", "reflections": True, "scales": (0.8, 1.0)},
]


def small(**options):
    """A bank of few templates, small patches and few angles, with the options of a configuration."""
    defaults = {"kind": "orbit", "patch_sizes": (5, 9), "n_templates": 3, "n_angles": 8}
    return bank_from_dict(defaults | options)


def noise(shape, seed=0, sigma=1.5):
    """A smooth texture with values about 0.5."""
    texture = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), sigma, axes=(0, 1))
    return (0.5 + 0.1 * texture / texture.std()).astype(np.float32)


IMAGE = noise((36, 44, 2))


def orbit_channels(bank, n_image_channels):
    return np.array(
        [n for n, channel in enumerate(bank.channels(n_image_channels)) if "orbit" in channel.group]
    )


def naive_projections(bank, image, row, col, size, elements):
    """For each scale, mirror and angle, projections on the templates of the patch at a pixel, read at turned positions."""
    templates = bank._templates(image.shape[2])[size].astype(float)
    smooth = ndimage.gaussian_filter(image, (0.7, 0.7, 0))
    grid = [np.array(p) for p in itertools.product(range(-9, 10), repeat=2)]
    projections = []
    for scale, mirror, angle in elements:
        radius = scale * (size + 1) / 2
        matrix = np.array([[np.cos(angle), -mirror * np.sin(angle)], [np.sin(angle), mirror * np.cos(angle)]])
        pixels = [y for y in grid if np.hypot(*y) < radius]
        weight = np.array([1 - y @ y / radius**2 for y in pixels])
        weight /= np.sqrt((weight**2).sum())
        values = np.array([smooth[row + y[0], col + y[1]] for y in pixels], dtype=float)
        values -= weight**2 @ values
        values *= weight[:, None] / np.sqrt((weight**2 @ values**2).sum() + 0.02**2)
        # the template's own pixels are those of the patch that is not enlarged
        own = [y for y in grid if np.hypot(*y) < (size + 1) / 2]
        width = scale * 0.7
        turned = np.zeros((len(own), image.shape[2]))
        for n, y in enumerate(own):
            for z, value in zip(pixels, values, strict=True):
                distance = np.hypot(*(z - scale * matrix @ y))
                turned[n] += scale * value * np.exp(-(distance**2) / (2 * width**2)) / (2 * np.pi * width**2)
        projections.append(np.einsum("tcp,pc->t", templates, turned))
    return projections


THIRDS = [2 * np.pi * turn / 3 for turn in range(3)]


@pytest.mark.parametrize(
    ("group", "elements"),
    [
        (Rotation(3), [(1, 1, angle) for angle in THIRDS]),
        (
            Composition((Scaling((0.8, 1.0)), Rotation(3), Reflection())),
            list(itertools.product([0.8, 1], [1, -1], THIRDS)),
        ),
        # A window of turns is none of their inverses.
        (Rotation((0.0, 90.0)), [(1, 1, 0.0), (1, 1, np.pi / 2)]),
    ],
    ids=["turns", "similarities", "window"],
)
@pytest.mark.parametrize("embedding", [FourierEmbedding(Gaussian(1.5)), StepEmbedding((-0.5, 0.5))], ids=repr)
def test_features_equal_a_naive_loop(group, elements, embedding):
    bank = OrbitBank((5,), n_templates=3, embedding=embedding, group=group, templates="patches").fit([IMAGE])
    ours = bank.sample(IMAGE, np.array([17]), np.array([20]), orbit_channels(bank, 2))[0]
    projections = naive_projections(bank, IMAGE, 17, 20, 5, elements)
    if isinstance(embedding, FourierEmbedding):
        angles = [np.sqrt(2 * 1.5) * projection for projection in projections]
        expected = np.mean([np.stack([np.cos(a), np.sin(a)], axis=1).ravel() for a in angles], axis=0)
    else:
        steps = [np.less_equal.outer(projection, embedding.thresholds) for projection in projections]
        expected = np.mean(steps, axis=0).ravel()
    np.testing.assert_allclose(ours, expected, atol=2e-5)


@pytest.mark.parametrize(("options", "stride"), list(zip(EMBEDDINGS, [1, 2, 2], strict=True)))
def test_quarter_turns_turn_the_maps(options, stride):
    image = IMAGE[:35, :43]
    bank = small(stride=stride, **options).fit([image])
    turned = np.rot90(bank.dense(image), axes=(1, 2))
    difference = np.abs(bank.dense(np.rot90(image)) - turned)
    # a projection within rounding of a threshold may fall on either side of it
    assert np.quantile(difference, 0.999) < 2e-4


@pytest.mark.parametrize(("gain", "shift"), [(0.2, 0.5), (1.5, -0.5)])
def test_brightness_and_contrast_do_not_matter_to_patches(gain, shift, monkeypatch):
    monkeypatch.setattr("segkit.features.orbit.FLOOR", 1e-5)
    bank = small()
    wanted = orbit_channels(bank, 2)
    pixels = np.array([8, 20]), np.array([15, 30])
    np.testing.assert_allclose(
        bank.sample(gain * IMAGE + np.float32(shift), *pixels, wanted),
        bank.sample(IMAGE, *pixels, wanted),
        atol=1e-3,
    )


def test_flat_regions_stay_flat(monkeypatch):
    """Noise far below the floor gives next to nothing; far above it, as much as any texture."""
    flat = (0.5 + 1e-4 * np.random.default_rng(0).standard_normal((20, 20))).astype(np.float32)

    def spread(floor):
        monkeypatch.setattr("segkit.features.orbit.FLOOR", floor)
        bank = small()
        return bank.dense(flat, orbit_channels(bank, 1)).std(axis=(1, 2)).max()

    assert spread(0.02) < 0.01
    assert spread(1e-6) > 0.1


def test_window_channels_are_weighted_mean_and_deviation():
    bank = small(patch_sizes=(5,))
    mean0, mean1, deviation = bank.sample(IMAGE, np.array([9]), np.array([9]), np.array([2, 3, 4]))[0]
    smooth = ndimage.gaussian_filter(IMAGE, (0.7, 0.7, 0))
    offsets = np.indices((5, 5)) - 2
    weight = np.clip(1 - (offsets**2).sum(axis=0) / 9, 0, None) ** 2
    weight /= weight.sum()
    patch = smooth[7:12, 7:12]
    means = np.einsum("ij,ijc->c", weight, patch)
    np.testing.assert_allclose([mean0, mean1], means, rtol=1e-5)
    assert deviation == pytest.approx(np.sqrt((weight[:, :, None] * (patch - means) ** 2).sum()), rel=1e-4)


def test_channel_names_follow_patch_size_and_embedding():
    names = [channel.name for channel in small(n_templates=1, patch_sizes=(5,)).channels(3)]
    assert names[:3] == ["pixel c0", "pixel c1", "pixel c2"]
    assert names[3:] == [
        "s5 mean c0", "s5 mean c1", "s5 mean c2", "s5 deviation", "s5 cos 000", "s5 sin 000",
    ]  # fmt: skip
    steps = small(n_templates=1, patch_sizes=(5,), nonlinearity="step", thresholds=(-1, 0.5))
    assert [channel.name for channel in steps.channels(1)][-2:] == ["s5 step 000 at -1", "s5 step 000 at 0.5"]
    assert small(patch_sizes=(5, 9)).channels(1)[-1] == ("s9 sin 002", "s9 orbit")


@pytest.mark.parametrize("options", EMBEDDINGS)
def test_wanted_channels_and_sampled_pixels_equal_parts_of_all(options, monkeypatch):
    bank = small(**options).fit([IMAGE])
    everything = bank.dense(IMAGE)
    assert everything.dtype == np.float32
    assert len(everything) == len(bank.channels(2))
    wanted = np.array([1, 4, 6, 9, len(everything) - 1])
    np.testing.assert_allclose(bank.dense(IMAGE, wanted), everything[wanted], atol=2e-5)
    monkeypatch.setattr("segkit.features.orbit.BLOCK_SIZE", 5000)
    rows, cols = np.array([0, 33, 35]), np.array([43, 31, 0])
    np.testing.assert_allclose(
        bank.sample(IMAGE, rows, cols, wanted), everything[wanted][:, rows, cols].T, atol=2e-5
    )
    np.testing.assert_allclose(
        bank.sample(IMAGE, rows[1:2] - 0.5, cols[1:2]), everything[:, 32:34, 31].mean(axis=1)[None], atol=2e-5
    )


def test_drawn_templates_are_weights():
    bank = small(templates="patches")
    again = clone(bank).fit([IMAGE, IMAGE[:20]])
    bank.fit([IMAGE, IMAGE[:20]])
    weights = bank.weights_used(np.arange(3), 2)
    assert {name: array.shape for name, array in weights.items()} == {
        "templates.5": (3, 2, 25),
        "templates.9": (3, 2, 69),
    }
    for name, array in again.weights_used(np.arange(3), 2).items():
        np.testing.assert_array_equal(array, weights[name])
    restored = bank_from_dict(bank_to_dict(bank))
    restored.use_weights(dict(reversed(weights.items())))
    np.testing.assert_array_equal(restored.dense(IMAGE), bank.dense(IMAGE))


def test_projections_on_drawn_templates_have_a_mean_square_of_one():
    bank = small(patch_sizes=(9,), templates="patches", n_templates=40).fit([IMAGE])
    templates = bank.templates_[9].reshape(40, -1)
    rows, cols = np.indices(IMAGE.shape[:2]).reshape(2, -1) + bank._margin
    patches = Disc.of(9).read(bank._planes(IMAGE), rows, cols).values
    np.testing.assert_allclose(np.square(patches @ templates.T).mean(axis=0), 1, atol=0.25)


def test_flat_patches_are_rarely_drawn():
    """Half of the image is nearly flat: so would half of the templates be if all patches counted the same."""
    rows, cols = np.indices((60, 60))
    image = np.where(rows < 30, 0.5 + 0.1 * np.sin(cols), 0.5 + 1e-3 * np.sin(rows)).astype(np.float32)
    templates = small(patch_sizes=(5,), templates="patches", n_templates=60).fit([image]).templates_[5][:, 0]
    disc = Disc.of(5)
    middle = disc.offsets[:, 1] == 0
    # a column of the patches of the upper half has one value
    columns = (templates / disc.amplitude)[:, middle].std(axis=1) / (templates / disc.amplitude).std(axis=1)
    assert np.mean(columns > 0.5) < 0.2


def test_a_stride_reaches_one_patch_further():
    assert OrbitBank((5,), stride=4).halo == OrbitBank((5,)).halo + 4


def test_noise_needs_no_images_and_has_no_weights():
    bank = small()
    assert bank.weights_used(np.arange(3), 1) == {}
    assert not bank.learns_weights
    assert not hasattr(bank.fit([IMAGE]), "templates_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_sizes": (8,)}, "patch_sizes=(8,): input should be odd"),
        ({"patch_sizes": ()}, "patch_sizes=(): value should have at least 1 item"),
        ({"patch_sizes": (9, 9)}, "patch_sizes=(9, 9): each value should be given once"),
        ({"patch_sizes": (9.0,)}, "patch_sizes=(9.0,): input should be a valid integer"),
        ({"n_templates": 0}, "n_templates=0: input should be greater than 0"),
        ({"stride": 0}, "stride=0: input should be greater than 0"),
        ({"random_state": None}, "random_state=None: input should be a valid integer"),
        ({"random_state": -1}, "random_state=-1: input should be greater than or equal to 0"),
        ({"templates": "noise"}, "templates='noise': input should be 'gaussian' or 'patches'"),
        ({"embedding": "fourier"}, "embedding='fourier': input should be an instance of FourierEmbedding"),
        (
            {"embedding": FourierEmbedding(Laplacian(1.0))},
            "embedding FourierEmbedding(kernel=Laplacian(gamma=1.0)): give it a Gaussian kernel, such as Gaussian(1.0)",
        ),
        (
            {"embedding": StepEmbedding((0.1, 0.1000001))},
            "embedding StepEmbedding(thresholds=(0.1, 0.1000001)): give thresholds that differ in six digits",
        ),
        ({"group": 16}, "group=16: input should be an instance of Group"),
        ({"group": Rotation()}, "has infinitely many elements: list some of them, as Rotation(24) does"),
        (
            {"group": Translation(1)},
            "does more than turn, reflect and enlarge about the centre: give such a group",
        ),
    ],
)
def test_bad_options(options, message):
    for use in ("channels", "dense", "fit"):
        with pytest.raises(ConfigError) as caught:
            getattr(OrbitBank(**options), use)(IMAGE)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nonlinearity": "relu"}, "nonlinearity='relu': input should be 'fourier' or 'step'"),
        (
            {"nonlinearity": "step", "thresholds": []},
            "thresholds=[]: value should have at least 1 item after validation, not 0",
        ),
        ({"n_angles": 0}, "n_angles=0: input should be greater than 0"),
        ({"n_angles": 721}, "n_angles=721: input should be less than or equal to 720"),
        ({"scales": [1.0, 0.0]}, "scales=[1.0, 0.0]: input should be greater than 0"),
        ({"gamma": 0}, "gamma=0: input should be greater than 0"),
    ],
)
def test_bad_options_of_configurations(options, message):
    with pytest.raises(ConfigError) as caught:
        small(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("group", "options"),
    [
        (None, (16, False, [1.0])),
        (Dihedral(), (4, True, [1.0])),
        (Composition((Rotation(6), Reflection())), (6, True, [1.0])),
        (Composition((Scaling((0.5, 1.0)), Rotation(2))), (2, False, [0.5, 1.0])),
    ],
    ids=repr,
)
def test_groups_are_described_by_the_options_of_configurations(group, options):
    bank = OrbitBank((5,), n_templates=2, group=group)
    description = bank_to_dict(bank)
    assert tuple(description[name] for name in ("n_angles", "reflections", "scales")) == options
    np.testing.assert_allclose(bank_from_dict(description).dense(IMAGE), bank.dense(IMAGE), atol=1e-6)


@pytest.mark.parametrize(
    "group",
    [
        Rotation((0.0, 10.0)),
        Scaling((0.5, 1.0), unitary=False),
        Composition((Rotation(2), Rotation(3))),
        Composition((Dihedral(), Scaling((0.5, 1.0)))),
    ],
    ids=repr,
)
def test_other_groups_average_but_cannot_be_stored(group):
    bank = OrbitBank((5,), n_templates=2, group=group)
    assert np.isfinite(bank.dense(IMAGE)).all()
    with pytest.raises(
        ConfigError, match=r"only .* of Reflection\(\), Rotation\(n\), Scaling\(factors\) can be stored"
    ):
        bank_to_dict(bank)


def test_templates_that_are_not_there():
    bank = small(templates="patches")
    with pytest.raises(InputError, match=r"OrbitBank\(templates='patches'\) has no templates yet: fit it to"):
        bank.dense(IMAGE)
    with pytest.raises(
        InputError, match=r"arrays a: this bank needs templates.5, templates.9; give the arrays of"
    ):
        bank.use_weights({"a": np.zeros(1)})
    with pytest.raises(InputError, match="arrays a: this bank needs none"):
        small().use_weights({"a": np.zeros(1)})
    with pytest.raises(InputError, match="0 of 60 patches are not flat: 3 templates need as many"):
        bank.fit([np.full((20, 20), 0.5)])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "0 images with [] channels: give one or more, all of one kind"),
        ([IMAGE, IMAGE[:, :, 0]], "2 images with [1, 2] channels: give one or more, all of one kind"),
    ],
)
def test_images_that_templates_cannot_be_drawn_from(images, message):
    with pytest.raises(InputError) as caught:
        small(templates="patches").fit(images)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("image", "options", "needed"),
    [
        (IMAGE[:, :, 0], {}, "{5: (3, 1, 25)} for an image with 1 channels"),
        (IMAGE, {"patch_sizes": (7,)}, "{7: (3, 2, 45)} for an image with 2 channels"),
        (IMAGE, {"n_templates": 4}, "{5: (4, 2, 25)} for an image with 2 channels"),
    ],
)
def test_templates_of_other_images_or_options_are_refused(image, options, needed):
    bank = small(patch_sizes=(5,), templates="patches").fit([IMAGE]).set_params(**options)
    with pytest.raises(InputError) as caught:
        bank.dense(image)
    assert str(caught.value) == (
        f"templates of sizes and shapes {{5: (3, 2, 25)}}: this bank needs {needed}; "
        f"fit it again, to images of the same kind"
    )


def test_weights_of_other_shapes_are_refused():
    bank = small(patch_sizes=(5,), templates="patches")
    for shape in ((3, 2, 24), (2, 2, 25), (3, 50), (150,)):
        with pytest.raises(InputError, match=r"templates of sizes and shapes .*: this bank needs {5: \(3, "):
            bank.use_weights({"templates.5": np.zeros(shape, dtype=np.float32)})
    assert not hasattr(bank, "templates_")


def test_drawn_templates_are_no_weights_of_noise():
    bank = small(templates="patches").fit([IMAGE]).set_params(templates="gaussian")
    assert bank.weights_used(np.arange(3), 2) == {}


def test_parameters_may_be_of_numpy():
    options = {
        "patch_sizes": np.array([5, 9]),
        "n_templates": np.int64(3),
        "gamma": np.float32(0.5),
        "scales": np.array([0.5, 1.0]),
        "random_state": np.int64(2),
    }
    description = json.loads(json.dumps(bank_to_dict(small(**options))))
    assert description["patch_sizes"] == [5, 9]
    np.testing.assert_array_equal(bank_from_dict(description).dense(IMAGE), small(**options).dense(IMAGE))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_sizes": (10**9 + 1,)}, "input should be less than or equal to 301"),
        ({"n_templates": 10**9}, "input should be less than or equal to 10000"),
    ],
)
def test_banks_of_absurd_size_are_refused_before_they_are_made(options, message):
    with pytest.raises(ConfigError, match=message):
        OrbitBank(**options).channels(1)
    drawn = OrbitBank(templates="patches", **options)
    with pytest.raises(ConfigError, match=message):
        drawn.use_weights({f"templates.{size}": np.zeros((1, 1, 1)) for size in drawn.patch_sizes})
