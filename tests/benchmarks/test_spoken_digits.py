"""The transformation of spectrograms over time against closed forms."""

import numpy as np
import pytest

from benchmarks.tables.spoken_digits import TimeWarp


def bump(length=101):
    """A signal at frame 60, at two frequencies."""
    at_frame_60 = np.exp(-(((np.arange(length) - 60) / 6) ** 2))
    return np.stack([at_frame_60, 2 * at_frame_60], axis=1)[None]


@pytest.mark.parametrize(("speed", "frame"), [(0.5, 70), (1.0, 60), (2.0, 55)])
def test_what_happens_moves_about_the_middle_and_keeps_its_norm(speed, frame):
    warped = TimeWarp((speed,)).act(speed, bump())
    assert warped[0].argmax(axis=0).tolist() == [frame, frame]
    np.testing.assert_allclose(warped[0, :, 1], 2 * warped[0, :, 0])
    assert np.linalg.norm(warped) == pytest.approx(np.linalg.norm(bump()), rel=0.02)


def test_adjoint_is_the_transpose():
    x, y = np.random.default_rng(0).normal(size=(2, 3, 9, 4))
    group = TimeWarp((1.3,))
    assert np.vdot(group.act(1.3, x), y) == pytest.approx(np.vdot(x, group.adjoint(1.3, y)))
