import numpy as np
import pytest
from scipy import ndimage
from sklearn.base import clone

from segkit import MixtureRFF, OrbitBank, ScatteringBank, Segmenter
from segkit.errors import ConfigError
from segkit.features import (
    Channel,
    ConvNetBank,
    FeatureMaps,
    FilterBank,
    OrbitAveraged,
    bank_from_dict,
    bank_to_dict,
)
from segkit.features.averaged import _Sum
from segkit.features.base import as_image
from segkit.features.registry import group_of
from segkit.invariance import Composition, Permutation, Reflection, Rotation, Scaling, Translation
from segkit.selection import ConditionalCovarianceSelector

SCATTERING = ScatteringBank(J=(1, 2), L=2)
CONVNET = ConvNetBank("squeezenet1_0", weights="random", layers=["conv1", "fire2_squeeze"])
ELEMENTS = [(turns, mirrored) for turns in range(4) for mirrored in (False, True)]


def symmetry(element, array):
    """One of the eight symmetries of the square, on the last two axes."""
    turns, mirrored = element
    return np.rot90(array[..., ::-1] if mirrored else array, turns, axes=(-2, -1))


def moved(element, image):
    return symmetry(element, image.transpose(2, 0, 1)).transpose(1, 2, 0)


def texture(shape, seed=0, sigma=1.5):
    smooth = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), sigma, axes=(0, 1))
    return (0.5 + 0.1 * smooth / smooth.std()).astype(np.float32)


IMAGE = texture((26, 33, 3), sigma=1)


def cells_of(stack):
    """Rows and columns of the cells of a stack, in pixels."""
    at = np.indices(stack.values.shape[1:]).reshape(2, -1) * stack.stride
    return at + np.broadcast_to(stack.offset, 2)[:, None]


def bilinear(values, row, col):
    """One value between four others."""
    top, left = int(row), int(col)
    upper = values[top, left] * (1 - (col - left)) + values[top, left + 1] * (col - left)
    lower = values[top + 1, left] * (1 - (col - left)) + values[top + 1, left + 1] * (col - left)
    return upper * (1 - (row - top)) + lower * (row - top)


def averaged_naively(elements, stack, bank=SCATTERING, image=IMAGE):
    """Features of a bank at the cells of a stack, of every moved image."""
    found = []
    for turns, mirrored in elements:
        (rows, cols), (height, width) = cells_of(stack), image.shape[:2]
        if mirrored:
            cols = width - 1 - cols
        for _ in range(turns):
            rows, cols, height, width = width - 1 - cols, rows, width, height
        maps = bank.sample(moved((turns, mirrored), image), rows, cols)
        found.append(maps.T.reshape(-1, *stack.values.shape[1:]))
    return np.array(found)


@pytest.mark.parametrize(
    ("bank", "element"),
    [
        (SCATTERING, (1, False)),
        (SCATTERING, (0, True)),
        (CONVNET, (1, True)),
    ],  # a turn and a mirror make all eight
    ids=["turned", "mirrored", "both"],
)
def test_symmetries_move_the_maps(bank, element):
    averaged = OrbitAveraged(bank)
    wanted = np.arange(0, len(averaged.channels(3)), 7)
    stacks, of_moved = (averaged.maps(image, wanted) for image in (IMAGE, moved(element, IMAGE)))
    for stack, other in zip(stacks, of_moved, strict=True):
        np.testing.assert_allclose(other.values, symmetry(element, stack.values), atol=1e-6)
        np.testing.assert_array_equal(other.indices, stack.indices)
    maps = averaged.dense(IMAGE, wanted)
    np.testing.assert_allclose(
        averaged.dense(moved(element, IMAGE), wanted), symmetry(element, maps), atol=1e-6
    )


def test_maps_are_as_coarse_as_the_banks_and_lie_evenly_about_the_centre():
    coarse = OrbitAveraged(SCATTERING).maps(IMAGE)
    assert [stack.stride for stack in coarse] == [stack.stride for stack in SCATTERING.maps(IMAGE)]
    for stack in coarse:
        for axis, length in enumerate(IMAGE.shape[:2]):
            cells = cells_of(stack)[axis]
            assert cells.min() == length - 1 - cells.max()
            assert 0 <= cells.min() < stack.stride / 2


@pytest.mark.parametrize(
    ("group", "elements"),
    [(None, ELEMENTS), (Rotation(1), ELEMENTS[:1]), (Rotation(4), ELEMENTS[::2])],
    ids=["d4", "1", "4"],
)
def test_means_over_the_group_equal_a_naive_loop(group, elements):
    for stack in OrbitAveraged(SCATTERING, group=group).maps(IMAGE):
        naive = averaged_naively(elements, stack)[:, stack.indices]
        np.testing.assert_allclose(stack.values, naive.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_blocks_of_dilated_networks_are_averaged_as_by_a_naive_loop(n_threads, monkeypatch):
    """One after the other in one thread, side by side in two."""
    monkeypatch.setattr("segkit.features.averaged.count_threads", lambda: n_threads)
    bank = ConvNetBank(
        "mobilenet_v2", weights="random", layers=["features.3", "features.14", "features.17"], output_stride=8
    )
    image = texture((28, 36, 3))
    stacks = OrbitAveraged(bank).maps(image)
    assert [stack.stride for stack in stacks] == [4, 8, 8]
    for stack in stacks:
        naive = averaged_naively(ELEMENTS, stack, bank, image)[:, stack.indices].mean(axis=0)
        np.testing.assert_allclose(stack.values, naive, atol=1e-5 * np.abs(naive).max())


def test_maps_of_one_thread_are_added_as_they_come(monkeypatch):
    """No list of the maps of a turned image: each is computed after the one before was added."""
    monkeypatch.setattr("segkit.features.averaged.count_threads", lambda: 1)
    events = []

    class Three(Window):
        def iter_maps(self, image, tile, channels=None):
            for index in range(3):
                events.append("computed")
                yield FeatureMaps(np.ones((1, *tile.shape), dtype=np.float32), np.array([index]))

        def channels(self, n_image_channels=3):
            return tuple(Channel(str(index), "") for index in range(3))

    add = _Sum.add
    monkeypatch.setattr(_Sum, "add", lambda *given: events.append("added") or add(*given))
    OrbitAveraged(Three()).maps(np.ones((5, 6)))
    assert events == ["computed", "added"] * 24


@pytest.mark.parametrize("orbit", [1, 3])
def test_turned_images_are_mirrored_at_their_edges(orbit, monkeypatch):
    monkeypatch.setattr("segkit.features.averaged.PIXELS_SIDE_BY_SIDE", 0)  # views come one by one, in order
    seen = []

    class Seeing(Window):
        def maps(self, image, channels=None):
            seen.append(image[:, :, 0])
            return super().maps(image, channels)

    image = texture((9, 12), seed=1)
    OrbitAveraged(Seeing(), group=group_of(orbit)).maps(image)
    assert len(seen) == orbit
    for number, turned in enumerate(seen):
        angle = 2 * np.pi * number / orbit
        back = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        centre, turned_centre = (np.array(image.shape) - 1) / 2, (np.array(turned.shape) - 1) / 2
        mirrored = np.pad(image, 12, mode="reflect")
        for pixel in np.ndindex(*turned.shape):
            row, col = back @ (pixel - turned_centre) + centre + 12
            assert turned[pixel] == pytest.approx(bilinear(mirrored, row, col), abs=1e-5)


def test_a_turned_ramp_is_found_where_it_was(rng):
    """A linear function is reproduced by bilinear interpolation, so averaging must give it back."""
    ramp = (np.arange(26)[:, None] / 50 + np.arange(33) / 100).astype(np.float32)
    bank = OrbitAveraged(ScatteringBank(J=1, L=1), group=Rotation(12))
    rows, cols = rng.uniform(9, 16, 20), rng.uniform(9, 23, 20)
    found = bank.sample(ramp, rows, cols, np.array([0]))
    np.testing.assert_allclose(found[:, 0], rows / 50 + cols / 100, atol=1e-5)


def test_channels_are_the_banks():
    averaged = OrbitAveraged(SCATTERING).channels(1)
    assert averaged == tuple((name, f"{group} averaged") for name, group in SCATTERING.channels(1))


def test_halo_alignment_and_weights_are_the_banks():
    averaged = OrbitAveraged(CONVNET)
    assert (averaged.halo, averaged.alignment) == (CONVNET.halo + CONVNET.alignment, CONVNET.alignment)
    assert OrbitAveraged(CONVNET, group=Rotation(8)).halo >= np.sqrt(2) * CONVNET.halo
    last = len(averaged.channels(3)) - 1
    weights = averaged.weights_used(np.array([0, last]), 3)
    expected = CONVNET.weights_used(np.array([0, last]), 3)
    np.testing.assert_equal(weights, {f"0/{name}": weight for name, weight in expected.items()})
    other = OrbitAveraged(clone(CONVNET).set_params(random_state=1))
    other.use_weights(weights)
    np.testing.assert_array_equal(other.dense(IMAGE, np.array([2])), averaged.dense(IMAGE, np.array([2])))
    learning = OrbitAveraged(OrbitBank((5,), n_templates=2, templates="patches"), group=Rotation(2))
    assert learning.learns_weights
    assert not averaged.learns_weights
    assert list(learning.fit([IMAGE]).weights_used(np.array([0]), 3)) == ["0/templates.5"]


class Window(FilterBank):
    """The mean of the square of so many pixels about a pixel, at every pixel or at some."""

    def __init__(self, reach=0, stride=1):
        self.reach = reach
        self.stride = stride

    def channels(self, n_image_channels=3):
        return (Channel("mean", "mean"),)

    @property
    def halo(self):
        return self.reach + (self.stride if self.stride > 1 else 0)

    @property
    def alignment(self):
        return self.stride

    def maps(self, image, channels=None):
        mean = ndimage.uniform_filter(as_image(image)[:, :, 0], 2 * self.reach + 1, mode="mirror")
        cells = mean[None, :: self.stride, :: self.stride]
        return [FeatureMaps(cells, np.array([0]), float(self.stride))]


def farthest(bank, pixels):
    """The largest distance from one of these pixels to a feature that depends on it."""
    reach = 0
    for pixel in pixels:
        image = np.zeros((61, 64), dtype=np.float32)
        image[tuple(pixel)] = 1
        seen = np.argwhere(bank.dense(image)[0] > 1e-6)
        reach = max(reach, *np.abs(seen - pixel).max(axis=0, initial=0))
    return reach


@pytest.mark.parametrize(("orbit", "reach"), [("d4", 3), (8, 0), (24, 2)])
def test_features_depend_on_pixels_up_to_the_halo(orbit, reach):
    bank = OrbitAveraged(Window(reach), group=group_of(orbit))
    assert farthest(bank, [(30, 30), (30, 31), (28, 32)]) == bank.halo


@pytest.mark.parametrize(("orbit", "stride"), [("d4", 4), (8, 2)])
def test_features_of_coarse_maps_depend_on_pixels_within_the_halo(orbit, stride):
    bank = OrbitAveraged(Window(1, stride), group=group_of(orbit))
    assert bank.bank.halo < farthest(bank, np.argwhere(np.ones((stride, stride))) + 28) <= bank.halo


@pytest.mark.parametrize("orbit", ["d4", 6])
def test_descriptions_bring_the_bank_back(orbit):
    bank = OrbitAveraged(SCATTERING, group=group_of(orbit))
    description = bank_to_dict(bank)
    assert description == bank_to_dict(SCATTERING) | {"orbit": orbit}
    restored = bank_from_dict(description)
    assert bank_to_dict(restored) == description
    assert type(restored) is OrbitAveraged


def test_its_own_bank_stays_as_it_is():
    """A fit or a loaded model leaves the argument of the constructor alone."""
    bank = OrbitBank((5,), n_templates=2, templates="patches", group=Rotation(2))
    averaged = OrbitAveraged(bank, group=Rotation(2)).fit([texture((26, 33, 3), seed=5)])
    first = averaged.banks_[0].templates_[5]
    assert not np.array_equal(averaged.fit([IMAGE]).banks_[0].templates_[5], first)
    assert averaged.bank is bank
    restored = clone(averaged)
    restored.use_weights(averaged.weights_used(np.array([0]), 3))
    assert not hasattr(bank, "templates_")
    assert not hasattr(restored.bank, "templates_")
    np.testing.assert_array_equal(restored.dense(IMAGE), averaged.dense(IMAGE))


def test_symmetries_of_the_square_may_be_composed():
    composed = OrbitAveraged(SCATTERING, group=Composition((Reflection(), Rotation(4))))
    np.testing.assert_array_equal(composed.dense(IMAGE), OrbitAveraged(SCATTERING).dense(IMAGE))
    assert composed.label == OrbitAveraged(SCATTERING).label
    eight = OrbitAveraged(SCATTERING, group=Composition((Reflection(), Rotation(3))))
    mirrored = eight.dense(np.ascontiguousarray(IMAGE[:, ::-1]))
    np.testing.assert_allclose(mirrored, eight.dense(IMAGE)[:, :, ::-1], atol=1e-5)


def test_orbits_that_name_no_group():
    for orbit in ("d8", 0, 721):
        with pytest.raises(ConfigError) as caught:
            bank_from_dict(bank_to_dict(SCATTERING) | {"orbit": orbit})
        assert str(caught.value) == f"orbit {orbit!r}: choose d4 or a number of angles, 1 to 720"


def test_groups_without_a_name_cannot_be_stored():
    bank = OrbitAveraged(SCATTERING, group=Rotation((0.0, 10.0)))
    with pytest.raises(ConfigError) as caught:
        bank_to_dict(bank)
    assert str(caught.value) == (
        "group Rotation(angles=(0.0, 10.0), order=1): only Dihedral() and Rotation(n) can be stored"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"group": "d4"},
            "group 'd4': give turns and reflections of segkit.invariance, such as Dihedral() or Rotation(16)",
        ),
        (
            {"group": Scaling((0.9, 1.1))},
            "group Scaling(factors=(0.9, 1.1), unitary=True): images are averaged over turns and reflections, "
            "leave Scaling out",
        ),
        (
            {"group": Permutation()},
            "Permutation() does not move the points of an image: give turns, reflections or scalings, such as Rotation(16)",
        ),
        (
            {"group": Translation(1)},
            "Translation(max_shift=1, mode='circular') does more than turn, reflect and enlarge about the centre: "
            "give such a group, as Rotation(16), Dihedral() or Composition((Rotation(16), Scaling((0.9, 1, 1.1))))",
        ),
        (
            {"bank": OrbitAveraged(SCATTERING)},
            "bank OrbitAveraged: give a filter bank, not averaged already, such as ScatteringBank()",
        ),
        (
            {"bank": None},
            "bank NoneType: give a filter bank, not averaged already, such as ScatteringBank()",
        ),
    ],
)
def test_bad_options(options, message):
    for use in ("channels", "dense", "fit"):
        with pytest.raises(ConfigError) as caught:
            getattr(OrbitAveraged(**{"bank": SCATTERING} | options), use)(IMAGE)
        assert str(caught.value) == message


def picture(seed, shape=(40, 48)):
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    mask = (np.hypot(rows - rng.uniform(12, 28), cols - rng.uniform(12, 36)) < 9).astype(np.uint8)
    image = np.clip(0.35 + 0.3 * mask + 0.04 * rng.standard_normal(shape), 0, 1).astype(np.float32)
    return image, mask


def test_labels_of_moved_images_are_the_moved_labels():
    image, mask = picture(0)
    segmenter = Segmenter(
        OrbitAveraged(SCATTERING),
        selector=ConditionalCovarianceSelector(n_features_to_select=8),
        kernels=MixtureRFF(n_components=128),
        selection_pixels=300,
        training_pixels=800,
    ).fit([image], [mask])
    other, truth = picture(1)
    assert segmenter.score([other], [truth]) > 0.8
    decisions, labels = segmenter.decision_function(other), segmenter.predict(other)
    sure = np.abs(decisions - segmenter.rule_.threshold) > 1e-5
    assert sure.mean() > 0.99
    for element in ELEMENTS:
        found = segmenter.predict(np.ascontiguousarray(symmetry(element, other)))
        expected, judged = symmetry(element, labels), symmetry(element, sure)
        np.testing.assert_array_equal(found[judged], expected[judged])
