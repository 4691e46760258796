"""The 3-D bank at the middle plane of a volume: against filters of the whole volume, and against polynomials."""

import numpy as np
import pytest
from scipy import ndimage

from segkit.errors import ConfigError, InputError
from segkit.features import VolumeBank
from segkit.features.volume import depth_weights


def as_channels(volume):
    """Make the image of a volume (n_planes, H, W, C): the channels of each plane, in order of depth."""
    return np.concatenate(list(volume.astype(np.float32)), axis=2)


def of_plane(bank, volume):
    maps = bank.dense(as_channels(volume))
    names = [channel.name for channel in bank.channels(volume.shape[0] * volume.shape[3])]
    return dict(zip(names, maps, strict=True))


@pytest.mark.parametrize(("n_planes", "spacing", "sigma"), [(17, 1.0, 1), (33, 0.5, 1)])
def test_it_is_the_gaussian_of_the_whole_volume(rng, n_planes, spacing, sigma):
    """All six maps, at every pixel of the middle plane, to a thousandth of what each varies by."""
    volume = rng.random((n_planes, 20, 22))
    found = of_plane(VolumeBank(n_planes=n_planes, z_spacing=spacing, sigma_max=2), volume[..., None])

    def along_z(order):
        """Filter along z by the derivative of the Gaussian at all planes, then within each plane."""
        options = {"mode": "nearest", "radius": n_planes // 2}
        filtered = ndimage.gaussian_filter1d(volume, sigma / spacing, axis=0, order=order, **options)
        smoothed = ndimage.gaussian_filter(filtered, (0, sigma, sigma), mode="nearest")
        return smoothed[n_planes // 2] / spacing**order

    smoothed, first, second = (along_z(order) for order in range(3))
    y, x = np.gradient(smoothed)
    (yy, yx), (_, xx), (zy, zx) = np.gradient(y), np.gradient(x), np.gradient(first)
    hessian = np.array([[yy, yx, zy], [yx, xx, zx], [zy, zx, second]]).transpose(2, 3, 0, 1)
    curvatures = np.moveaxis(np.linalg.eigvalsh(hessian)[:, :, ::-1], 2, 0)
    expected = [smoothed, np.sqrt(y**2 + x**2 + first**2), yy + xx + second, *curvatures]
    names = ["intensity", "edges", "blobs", *(f"curvature {order}" for order in (1, 2, 3))]
    for name, values in zip(names, expected, strict=True):
        np.testing.assert_allclose(
            found[f"sigma={sigma} 3-D {name}"], values, atol=1e-3 * values.std(), rtol=0, err_msg=name
        )


@pytest.mark.parametrize(("spacing", "n_planes"), [(0.5, 9), (6.0, 3)])
def test_quadratic_volumes_have_their_true_derivatives(spacing, n_planes):
    """f = 1 + 2z + 3z^2 + x z at x = y = z = 0, distances in pixels, whatever the distance of planes."""
    z = spacing * (np.arange(n_planes) - n_planes // 2)[:, None, None]
    y, x = np.mgrid[-20:21, -20:21]
    volume = (2 * z + 3 * z**2 + x * z + 0 * y) / 100
    found = of_plane(VolumeBank(n_planes=n_planes, z_spacing=spacing, sigma_max=1), volume[..., None])
    centre = {name.rpartition("3-D ")[2]: value[20, 20] for name, value in found.items()}
    assert centre["edges"] == pytest.approx(0.02, rel=1e-3)
    assert centre["blobs"] == pytest.approx(0.06, rel=1e-3)
    expected = np.linalg.eigvalsh([[6, 0, 1], [0, 0, 0], [1, 0, 0]])[::-1] / 100
    np.testing.assert_allclose([centre[f"curvature {order}"] for order in (1, 2, 3)], expected, atol=1e-5)


def test_a_single_plane_has_no_depth():
    smooth, first, second = depth_weights(1, 2.0, 1.0)
    assert (smooth, first, second) == ([1], [0], [0])


def test_planes_too_far_apart_show_no_slope():
    _, first, second = depth_weights(3, 1e4, 1.0)
    assert not first.any()
    assert not second.any()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n_planes": 2}, "n_planes=2: input should be odd"),
        ({"n_planes": 0}, "n_planes=0: input should be greater than 0"),
        ({"n_planes": 1.5}, "n_planes=1.5: input should be a valid integer"),
        ({"z_spacing": 0}, "z_spacing=0: input should be greater than 0"),
        ({"z_spacing": np.nan}, "z_spacing=nan: input should be a finite number"),
        ({"sigma_max": 0.5}, "0 < sigma_min <= sigma_max"),
    ],
)
def test_odd_options_are_refused(options, reason):
    with pytest.raises(ConfigError, match=reason):
        VolumeBank(**options).channels(1)


def test_images_of_other_planes_are_refused(rng):
    with pytest.raises(
        InputError, match=r"images of 4 channels, expected those of 3 planes: .* data\.context=1"
    ):
        VolumeBank(n_planes=3).dense(rng.random((8, 8, 4)))
