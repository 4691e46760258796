import numpy as np
import pytest

from segkit.errors import ConfigError, InputError
from segkit.invariance import LogNormal, Normal, PitchShift, TimeWarp


def bump(length=101):
    return np.exp(-(((np.arange(length) - 60) / 6) ** 2))[None]


def test_time_warp_moves_what_happens_about_the_middle():
    faster = TimeWarp((2.0,), unitary=False).act(2.0, bump())
    assert faster[0].argmax() == 55
    assert faster.max() == pytest.approx(1, abs=0.01)
    slower = TimeWarp((0.5,), unitary=False).act(0.5, bump())
    assert slower[0].argmax() == 70


@pytest.mark.parametrize("speed", [0.6, 1.7])
def test_time_warp_keeps_norms_in_continuous_time(speed):
    assert np.linalg.norm(TimeWarp((speed,)).act(speed, bump())) == pytest.approx(
        np.linalg.norm(bump()), rel=0.02
    )


def test_time_warp_there_and_back():
    group = TimeWarp(law=LogNormal(0.2))
    for speed in group.sample(5, (101,), np.random.default_rng(0)):
        np.testing.assert_allclose(
            group.act(group.inverse(speed), group.act(speed, bump())), bump(), atol=0.05
        )


def test_time_warp_acts_on_each_frequency_alike():
    spectrogram = np.stack([bump()[0], 2 * bump()[0]], axis=1)[None]
    warped = TimeWarp((1.3,)).act(1.3, spectrogram)
    np.testing.assert_allclose(warped[0, :, 1], 2 * warped[0, :, 0])
    np.testing.assert_allclose(warped[0, :, 0], TimeWarp((1.3,)).act(1.3, bump())[0])


def tone(frequency, length=8000):
    return np.sin(2 * np.pi * frequency * np.arange(length))[None]


def peak(signal):
    spectrum = abs(np.fft.rfft(signal[0]))
    return spectrum.argmax() / signal.shape[1]


@pytest.mark.parametrize("cents", [-1200.0, -400.0, 100.0, 400.0, 1200.0])
@pytest.mark.parametrize("frequency", [0.03, 0.0517])
def test_pitch_of_a_tone(cents, frequency):
    shifted = PitchShift((cents,)).act(cents, tone(frequency))
    assert shifted.shape == (1, 8000)
    assert peak(shifted) == pytest.approx(frequency * 2 ** (cents / 1200), abs=1.1 / 8000)
    # Loud all along: frames add up in phase.
    loudness = np.sqrt((shifted[0].reshape(-1, 500) ** 2).mean(axis=1))
    assert loudness[1:-1].min() > 0.4


def test_pitch_shift_keeps_the_time_of_what_happens():
    burst = tone(0.05) * np.exp(-(((np.arange(8000) - 5000) / 400) ** 2))
    shifted = PitchShift((400.0,)).act(400.0, burst)
    energy = shifted[0] ** 2
    assert (energy * np.arange(8000)).sum() / energy.sum() == pytest.approx(5000, abs=60)


@pytest.mark.parametrize("length", [1, 100, 4001])
def test_no_shift_gives_the_signal_back(length):
    x = np.random.default_rng(0).normal(size=(2, length)).astype(np.float32)
    y = PitchShift((0.0,)).act(0.0, x)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, x, atol=1e-5)


def test_pitch_shift_has_no_adjoint():
    group = PitchShift(law=Normal(100))
    assert not group.has_adjoint
    assert group.inverse(30.0) == -30
    assert np.std(group.sample(2000, (600,), np.random.default_rng(0))) == pytest.approx(100, rel=0.1)
    with pytest.raises(InputError, match="no adjoint"):
        group.adjoint(30.0, tone(0.1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeWarp(()), "at least one number"),
        (lambda: TimeWarp((-1.0,)), "all positive"),
        (lambda: TimeWarp((1.0,), law=LogNormal(1)), "not both"),
        (lambda: PitchShift(()), "at least one number"),
        (lambda: PitchShift((np.inf,)), "all finite"),
        (lambda: PitchShift((1.0,), law=Normal(1)), "not both"),
        (lambda: PitchShift(frame=10), "multiple of 4"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
