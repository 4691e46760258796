import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.features.wavelets import FAMILIES, _bump, bessel_bound

GABOR, MORLET, SHEARLET = (FAMILIES[name] for name in ("gabor", "morlet", "shearlet"))

families = pytest.mark.parametrize("name", sorted(FAMILIES))


def space(atom):
    """Centred atom in space, (0, 0) at the middle of an even grid."""
    return np.fft.fftshift(np.fft.ifft2(atom), axes=(-2, -1))


def meyer(x):
    """The wavelet of eq. 7.6: psi_1(x) = psi_2(log2 |4 x|), where psi_2 is the bump of eq. 7.7; 0 at 0."""
    with np.errstate(divide="ignore"):
        return _bump(np.log2(4 * np.abs(np.asarray(x, dtype=float))))


def total_energy(shape, n_scales, n_angles):
    atoms = SHEARLET.atoms(shape, n_scales, n_angles).astype(np.float64)
    return (atoms**2).sum(axis=(0, 1)) + SHEARLET.lowpass(shape, n_scales).astype(np.float64) ** 2


@pytest.mark.parametrize(("j", "k"), [(0, 3), (2, 1)])
def test_gabor_is_the_sampled_atom_of_the_paper(j, k):
    theta, sigma_x, sigma_y, frequency = k * np.pi / 8, 0.8, 1.6, 0.375
    atoms = GABOR.atoms((96, 80), 3, 8)
    y, x = np.mgrid[-48:48, -40:40].astype(float)
    along = 2.0**-j * (x * np.cos(theta) + y * np.sin(theta))
    across = 2.0**-j * (-x * np.sin(theta) + y * np.cos(theta))
    envelope = np.exp(-0.5 * (along**2 / sigma_x**2 + across**2 / sigma_y**2)) / (
        2 * np.pi * sigma_x * sigma_y
    )
    expected = 4.0**-j * envelope * np.exp(2j * np.pi * frequency * along)
    np.testing.assert_allclose(space(atoms[j, k]), expected, atol=2e-5 * 4.0**-j)


@pytest.mark.parametrize("family", [MORLET, SHEARLET])
def test_scaling_law(family):
    """One scale coarser is the same spectrum at half the frequency, where nothing folds back."""
    atoms = family.atoms((128, 128), 4, 8)
    np.testing.assert_allclose(atoms[3, :, :16, :16], atoms[2, :, :32:2, :32:2], atol=2e-5)


@families
def test_angles_point_at_the_centre_of_the_spectrum(name):
    family = FAMILIES[name]
    y, x = np.fft.fftfreq(128)[:, None], np.fft.fftfreq(128)[None, :]
    atoms = family.atoms((128, 128), 3, 8)[2].astype(float)
    doubled = np.angle((atoms**2 * (x + 1j * y) ** 2).sum(axis=(-2, -1)))
    off = (np.rad2deg(doubled) / 2 - family.angles(8) + 90) % 180 - 90
    assert np.abs(off).max() < 1.5


def test_angles():
    np.testing.assert_allclose(GABOR.angles(6), [0, 30, 60, 90, 120, 150])
    slopes = np.rad2deg(np.arctan(0.5))
    expected = [0, slopes, 45, 90 - slopes, 90, 90 + slopes, 135, 180 - slopes]
    np.testing.assert_allclose(SHEARLET.angles(8), expected)


def test_morlet_has_zero_mean_and_gabor_has_not():
    assert np.abs(MORLET.atoms((40, 56), 3, 6)[..., 0, 0]).max() < 1e-7
    assert GABOR.atoms((40, 56), 3, 6)[..., 0, 0].min() > 1e-3
    assert np.abs(SHEARLET.atoms((40, 56), 3, 6)[..., 0, 0]).max() == 0


def test_supports():
    assert np.all(meyer([0, 0.0625, 0.125, 0.5, 0.7, -0.5, 3]) == 0)
    np.testing.assert_allclose(meyer([-0.25, 0.25]), 1)
    assert np.all(_bump([-3, -1, 1, 1.5]) == 0)
    assert np.all(meyer(np.linspace(0.16, 0.45)) > 0)


@settings(max_examples=15)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5), st.integers(2, 12))
def test_shearlets_are_a_tight_frame(height, width, n_scales, n_angles):
    np.testing.assert_allclose(total_energy((height, width), n_scales, n_angles), 1, atol=3e-7)


@pytest.mark.parametrize("shape", [(32, 48), (31, 33)])
def test_shearlets_are_real_in_space(shape):
    atoms = np.fft.ifft2(SHEARLET.atoms(shape, 3, 8))
    assert np.abs(atoms.imag).max() < 1e-7
    assert np.abs(atoms.real).max() > 0.01


def test_shearlet_is_the_classical_product_in_its_cone():
    j, k, n_angles = 2, 1, 8
    atom = SHEARLET.atoms((128, 128), 3, n_angles)[j, k]
    u, v = np.fft.fftfreq(128)[20], np.fft.fftfreq(128)[7]
    expected = meyer(2.0 ** (j - 1) * u) * _bump(n_angles / 4 * v / u - k)
    assert expected > 0.1
    np.testing.assert_allclose(atom[7, 20], expected, rtol=1e-6)
    np.testing.assert_allclose(atom[-7, -20], expected, rtol=1e-6)


@pytest.mark.parametrize("family", [GABOR, SHEARLET])
def test_lowpass_keeps_the_mean_and_stops_the_fine_scales(family):
    lowpass = family.lowpass
    spectrum = lowpass((64, 64), 3)
    assert spectrum[0, 0] == 1
    assert spectrum[32, 32] < 1e-6
    # A grid twice as coarse sees the same low-pass one scale lower.
    np.testing.assert_allclose(lowpass((32, 32), 2)[:12, :12], spectrum[:12, :12], atol=1e-5)


@families
def test_little_lies_beyond_the_radius(name):
    family, size, share = FAMILIES[name], 192, 1e-4
    power = 2 if family.is_real else 1
    distance = np.abs(np.arange(size) - size // 2)
    distance = np.maximum(distance[:, None], distance)
    for n_angles in (4, 8):
        atoms = np.abs(space(family.atoms((size, size), 2, n_angles))) ** power
        for j in (0, 1):
            beyond = atoms[j][:, distance > 2**j * family.radius(n_angles)].sum(axis=-1)
            assert (beyond <= share * atoms[j].sum(axis=(-2, -1))).all()
    lowpass = np.abs(space(family.lowpass((size, size), 2))) ** power
    assert lowpass[distance > 4 * family.lowpass_radius].sum() <= share * lowpass.sum()


@families
def test_bessel_bound_holds_and_is_attained(name, rng):
    atoms = FAMILIES[name].atoms((32, 32), 3, 4)
    bound = bessel_bound(atoms)
    for image in rng.standard_normal((5, 32, 32)):
        responses = np.fft.ifft2(np.fft.fft2(image) * atoms)
        assert (np.abs(responses) ** 2).sum() <= bound * (image**2).sum()
    worst = np.unravel_index(np.square(atoms, dtype=float).sum(axis=(0, 1)).argmax(), (32, 32))
    spectrum = np.zeros((32, 32))
    spectrum[worst] = 1
    wave = np.fft.ifft2(spectrum)
    energy = (np.abs(np.fft.ifft2(spectrum * atoms)) ** 2).sum()
    np.testing.assert_allclose(energy, bound * (np.abs(wave) ** 2).sum(), rtol=1e-6)
