import json
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from sklearn.base import clone

from segkit.errors import ConfigError
from segkit.features.modules import Module, ModuleBank, _count_paths
from segkit.features.wavelets import FAMILIES, bessel_bound

SMALL = Module("morlet", n_scales=2, n_angles=2)


@pytest.fixture
def image(rng):
    return rng.random((20, 24), dtype=np.float32)


def names(bank, n_image_channels=1):
    return [channel.name for channel in bank.channels(n_image_channels)]


def convolve_naively(image, atom, size):
    """Sum over shifts of the atom times the reflected image, at the pixels of the image."""
    reach = size // 2
    kernel = np.fft.fftshift(np.fft.ifft2(atom))
    padded = np.pad(image.astype(float), reach, mode="reflect")
    height, width = image.shape
    out = np.zeros(image.shape, dtype=complex)
    for row, col in product(range(1, size), repeat=2):
        dy, dx = row - reach, col - reach
        shifted = padded[reach - dy : reach - dy + height, reach - dx : reach - dx + width]
        out += kernel[row, col] * shifted
    return out


@pytest.mark.parametrize(
    ("atoms", "nonlinearity"), [("morlet", "modulus"), ("gabor", "relu"), ("morlet", "tanh")]
)
def test_convolution_and_non_linearity_against_a_naive_loop(image, atoms, nonlinearity):
    bank = ModuleBank((Module(atoms, n_scales=2, n_angles=4, nonlinearity=nonlinearity),))
    features = bank.dense(image)
    filters = FAMILIES[atoms].atoms((32, 32), 2, 4).reshape(-1, 32, 32)
    rho = {"modulus": np.abs, "relu": lambda z: np.maximum(z.real, 0), "tanh": lambda z: np.tanh(z.real)}
    expected = [rho[nonlinearity](convolve_naively(image, atom, 32)) for atom in filters]
    np.testing.assert_array_equal(features[0], image)
    np.testing.assert_allclose(features[1:], expected, atol=2e-4)


@pytest.mark.parametrize("nonlinearity", ["modulus", "relu"])
def test_shearlets_against_the_full_complex_transform(rng, nonlinearity):
    """A periodic image far inside its own copies: only the atoms of the padded grid matter."""
    image = np.tile(rng.random((32, 32), dtype=np.float32), (9, 9))
    features = ModuleBank((Module("shearlet", 2, 4, nonlinearity=nonlinearity),)).dense(image)[
        1:, 128:160, 128:160
    ]
    atoms = FAMILIES["shearlet"].atoms((288, 288), 2, 4).reshape(-1, 288, 288)
    responses = np.fft.ifft2(np.fft.fft2(image) * atoms)[:, 128:160, 128:160]
    expected = np.abs(responses) if nonlinearity == "modulus" else np.maximum(responses.real, 0)
    np.testing.assert_allclose(features, expected, atol=1e-3)


@pytest.mark.parametrize("pooling", ["subsample", "average", "max"])
def test_pooling_against_a_naive_loop(image, pooling):
    layer = replace(SMALL, nonlinearity="tanh", pooling=pooling, factor=3)
    fine = ModuleBank((replace(layer, factor=1, pooling="subsample"),)).dense(image)[1:]
    (_, stack) = ModuleBank((layer,)).maps(image)
    assert stack.values.shape == (4, 7, 8)
    assert (stack.stride, stack.offset) == (3, 0 if pooling == "subsample" else 1)
    reduce = {"subsample": lambda b: b[0, 0], "average": np.mean, "max": lambda b: np.abs(b).max()}[pooling]
    for channel, row, col in product(range(4), range(6), range(8)):
        block = fine[channel, 3 * row : 3 * row + 3, 3 * col : 3 * col + 3]
        np.testing.assert_allclose(stack.values[channel, row, col], reduce(block), atol=1e-6)


def test_strides_and_offsets_accumulate(image):
    layers = (replace(SMALL, pooling="average", factor=2), replace(SMALL, pooling="max", factor=3))
    bank = ModuleBank(layers)
    assert [(s.stride, s.offset) for s in bank.maps(image)] == [(1, 0), (2, 0.5), (6, 2.5)]
    assert bank.alignment == 6


@pytest.mark.parametrize(("J", "L"), [(1, 8), (2, 4)])
def test_agrees_with_kymatio(rng, J, L):
    kymatio = pytest.importorskip("kymatio")
    image = gaussian_filter(rng.standard_normal((96, 96)), 1).astype(np.float32)
    reference = kymatio.Scattering2D(
        J=J, shape=image.shape, L=L, max_order=2, frontend="numpy", out_type="list"
    )(image)
    bank = ModuleBank((Module(n_scales=J, n_angles=L, output="lowpass"),) * 2)
    inside = slice(3, -3)  # kymatio reflects only 2**J pixels at the border
    features = dict(zip(names(bank), bank.dense(image)[:, :: 2**J, :: 2**J][:, inside, inside], strict=True))
    assert len(features) == len(reference)
    for path in reference:
        angles = FAMILIES["morlet"].angles(L)[[(theta + 1) % L for theta in path["theta"]]]
        steps = [f"morlet j{j} a{angle:.0f}" for j, angle in zip(path["j"], angles, strict=True)]
        name = " ".join(["c0", f"o{len(steps)}", " > ".join(steps)]).rstrip()
        expected = path["coef"].reshape(96 // 2**J, -1)[inside, inside]
        # Exact where kymatio does not subsample between layers; elsewhere its aliasing remains.
        rtol = 1e-4 if path["j"] in ((), (0,)) else 0.05
        assert np.linalg.norm(features[name] - expected) < rtol * np.linalg.norm(expected), name


@pytest.mark.parametrize("factor", [1, 2])
def test_lowpass_output_averages_the_delta_output(rng, factor):
    """On the pooled grid the low-pass is narrower by the factor, so its width in pixels stays."""
    image = np.tile(rng.random((16, 16), dtype=np.float32), (8, 8))
    layer = replace(SMALL, factor=factor)
    _, maps = ModuleBank((layer,)).maps(image)
    _, averaged = ModuleBank((replace(layer, output="lowpass"),)).maps(image)
    size = 16 // factor
    lowpass = FAMILIES["morlet"].lowpass((size, size), 2 - np.log2(factor))
    period = (slice(None), slice(3 * size, 4 * size), slice(3 * size, 4 * size))
    expected = np.fft.ifft2(np.fft.fft2(maps.values[period]) * lowpass).real
    np.testing.assert_allclose(averaged.values[period], expected, atol=2e-4)


def test_only_the_paths_asked_for_are_computed(image, monkeypatch):
    import torch

    calls = []
    inverse = torch.fft.ifft2
    monkeypatch.setattr(torch.fft, "ifft2", lambda *args: calls.append(1) or inverse(*args))
    bank = ModuleBank((Module(n_scales=3, n_angles=4),) * 2)
    wanted = [names(bank).index(name) for name in ("c0 o0", "c0 o2 morlet j0 a45 > morlet j2 a90")]
    bank.maps(image, np.array(wanted))
    assert len(calls) == 2


def test_names_and_groups():
    bank = ModuleBank((Module(n_scales=2, n_angles=6), Module("shearlet", n_scales=2, n_angles=8)))
    channels = bank.channels(2)
    assert channels[0] == ("c0 o0", "order 0")
    assert channels[2] == ("c0 o1 morlet j0 a30", "order 1")
    assert channels[13] == ("c0 o2 morlet j0 a0 > shearlet j1 a0", "order 2")
    assert channels[14].name == "c0 o2 morlet j0 a0 > shearlet j1 a27"
    assert len(channels) == 2 * (1 + 12 + 6 * 8)
    assert len({channel.name for channel in channels}) == len(channels)


def test_paths():
    assert len(names(ModuleBank((SMALL, SMALL)))) == 1 + 4 + 4
    assert len(names(ModuleBank((SMALL, SMALL), frequency_decreasing=False))) == 1 + 4 + 16
    # After pooling by 2, scale 0 of the second layer is as wide as scale 1 of the first.
    assert len(names(ModuleBank((replace(SMALL, factor=2), SMALL)))) == 1 + 4 + 2 * 4 + 2 * 2
    only_last = ModuleBank((replace(SMALL, output="none"), SMALL))
    assert {channel.group for channel in only_last.channels(1)} == {"order 2"}


@pytest.mark.parametrize("shape", [(1, 1), (3, 50)])
def test_tiny_images(shape):
    features = ModuleBank((replace(SMALL, factor=2), SMALL)).dense(np.full(shape, 0.5, dtype=np.float32))
    assert features.shape[1:] == shape
    np.testing.assert_allclose(features[1:], 0, atol=1e-6)


def test_bessel_bounds_are_those_of_each_layer_on_its_grid():
    bank = ModuleBank((replace(SMALL, factor=2), Module("shearlet")))
    first, second = bank.bessel_bounds((64, 48))
    assert first == bessel_bound(FAMILIES["morlet"].atoms((64, 48), 2, 2))
    np.testing.assert_allclose(second, 1, atol=1e-6)


def test_configuration_is_plain_and_complete(image):
    layers = ({"atoms": "gabor", "n_scales": 2, "n_angles": 2, "output": "lowpass"}, {"n_angles": 2})
    bank = ModuleBank(layers, frequency_decreasing=False)
    restored = ModuleBank(**json.loads(json.dumps(bank.get_params())))
    same = ModuleBank(tuple(Module(**layer) for layer in layers), frequency_decreasing=False)
    for other in (restored, same, clone(bank), clone(same)):
        assert names(other) == names(bank)
        np.testing.assert_array_equal(other.dense(image), bank.dense(image))
    assert Module(**asdict(same.modules[0])) == same.modules[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"atoms": "curvelet"}, "atoms='curvelet': input should be 'morlet', 'gabor' or 'shearlet'"),
        ({"nonlinearity": "sign"}, "nonlinearity='sign': input should be 'modulus', 'relu' or 'tanh'"),
        ({"pooling": "median"}, "pooling='median': input should be 'subsample', 'average' or 'max'"),
        ({"output": None}, "output=None: input should be 'delta', 'lowpass' or 'none'"),
        ({"factor": 0}, "factor=0: input should be greater than or equal to 1"),
        ({"n_angles": 1}, "n_angles=1: input should be greater than or equal to 2"),
        (
            {"scales": 3},
            "unknown module option scales: expected some of "
            "atoms, n_scales, n_angles, nonlinearity, pooling, factor, output",
        ),
    ],
)
def test_bad_module(options, message):
    with pytest.raises(ConfigError) as error:
        ModuleBank((options,)).channels(1)
    assert str(error.value) == message


@pytest.mark.parametrize("modules", [(), (replace(SMALL, output="none"),)])
def test_no_output(modules):
    with pytest.raises(ConfigError, match=rf"^{len(modules)} modules, none of them with an output: expected"):
        ModuleBank(modules).channels(1)


@pytest.mark.parametrize("decreasing", [True, False])
def test_paths_are_counted_without_being_listed(decreasing):
    for sizes in ([(2, 3, 1)], [(3, 2, 1), (2, 4, 2)], [(2, 2, 2), (3, 2, 1), (2, 3, 1)], [(1, 2, 1)] * 4):
        modules = tuple(Module(n_scales=j, n_angles=k, factor=factor) for j, k, factor in sizes)
        bank = ModuleBank(modules, frequency_decreasing=decreasing)
        assert _count_paths(modules, frequency_decreasing=decreasing) == len(bank.channels(1))


def test_cells_larger_than_any_image_needs_are_refused():
    """A model file of a stranger asked for half a minute to segment 64 x 64 pixels."""
    ModuleBank((Module(n_scales=1, factor=8),) * 2).channels(1)
    for modules in ((Module(factor=65),), (Module(n_scales=1, factor=2),) * 7, (Module(factor=10**9),)):
        with pytest.raises(ConfigError, match="at most 64 can be computed; give smaller factors"):
            ModuleBank(modules).channels(1)


@pytest.mark.parametrize("module", [Module(n_scales=8), Module("shearlet", n_scales=10, n_angles=2)])
def test_atoms_larger_than_any_image_needs_are_refused(module):
    """As for cells: ten scales of eight angles would take 80 GB for the atoms alone."""
    ModuleBank((replace(module, n_scales=5),)).channels(1)
    with pytest.raises(ConfigError, match="too many to be computed; give fewer scales or angles"):
        ModuleBank((module,)).channels(1)


def test_more_paths_than_can_be_computed_are_refused():
    """At once: a list of these would be longer than memory."""
    for modules in ((Module(n_scales=10, n_angles=64),) * 9, (Module(n_scales=3, n_angles=64),) * 3):
        with pytest.raises(ConfigError, match="paths: at most 20,000 can be computed"):
            ModuleBank(modules).channels(1)
