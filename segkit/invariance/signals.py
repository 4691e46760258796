"""Transformations of signals: played faster or slower, or at another pitch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import signal, sparse

from segkit.errors import ConfigError, InputError
from segkit.invariance.groups import Array, Element, OneParameterGroup, Shape
from segkit.invariance.laws import Law, LogNormal, Normal

CENTS_PER_OCTAVE = 1200


@dataclass(frozen=True)
class TimeWarp(OneParameterGroup):
    """Signals played at another speed about their middle, zeros entering at the ends.

    Acts on the first axis of a sample, so on signals (n, t) and on spectrograms (n, t, frequency).

    Parameters
    ----------
    speeds : sequence of float or None, default=None
        The speeds, 2 for twice as fast; None draws them by the law.
    law : Law or None, default=None
        Law of the speed where `speeds` is None; None is ``LogNormal(0.1)``.
    unitary : bool, default=True
        Whether amplitudes are multiplied by the root of the speed, |J|^(-1/2), so that inner
        products would be preserved in continuous time.

    Raises
    ------
    ConfigError
        If there is no speed, one is not positive, or both speeds and a law are given.

    Notes
    -----
    Samples are interpolated linearly.

    References
    ----------
    Y. Mroueh, S. Voinea, T. Poggio, Learning with group invariant features: a kernel perspective,
    2015, section 6.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import TimeWarp
    >>> TimeWarp((0.5, 2.0), unitary=False).act(2.0, np.array([[0.0, 1.0, 2.0, 3.0, 4.0]]))
    array([[0., 0., 2., 4., 0.]])
    """

    speeds: tuple[float, ...] | None = None
    law: Law | None = None
    unitary: bool = True
    n_axes: ClassVar[int] = 1

    positive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.speeds is not None:
            self._store_listed("speeds")

    @property
    def listed(self) -> tuple[float, ...] | None:
        """The speeds, or None where the law draws them."""
        return self.speeds

    @property
    def default_law(self) -> Law:
        """Law of the speed: ``LogNormal(0.1)``."""
        return LogNormal(0.1)

    @property
    def is_unitary(self) -> bool:
        """Whether inner products are preserved exactly: no, samples are interpolated."""
        return False

    def act(self, element: Element, X: Array) -> Array:
        """Play signals at that speed."""
        return _along_time(self._matrix(element, X), X)

    def adjoint(self, element: Element, X: Array) -> Array:
        """Apply the transposed interpolation."""
        return _along_time(self._matrix(element, X).T.tocsr(), X)

    def inverse(self, element: Element) -> Element:
        """Return the reciprocal speed."""
        return 1 / element

    def _matrix(self, speed: float, X: Array) -> Any:
        length = X.shape[1]
        middle = (length - 1) / 2
        times = (middle + speed * (np.arange(length) - middle)).round(9)
        before = np.floor(times)
        entries = []
        for time, weight in ((before, 1 - (times - before)), (before + 1, times - before)):
            kept = (time >= 0) & (time < length) & (weight > 0)
            entries.append((weight[kept], np.flatnonzero(kept), time[kept].astype(np.intp)))
        weights, targets, sources = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        weights *= math.sqrt(speed) if self.unitary else 1.0
        weights = weights.astype(np.result_type(X, np.float32))
        return sparse.csr_array((weights, (targets, sources)), shape=(length, length))


@dataclass(frozen=True)
class PitchShift(OneParameterGroup):
    """Signals at another pitch and the same speed.

    Parameters
    ----------
    cents : sequence of float or None, default=None
        The shifts, 1200 to the octave, positive upwards; None draws them by the law.
    law : Law or None, default=None
        Law of the shift in cents where `cents` is None; None is ``Normal(200)``.
    frame : int, default=512
        Samples in a frame of the short-time Fourier transform, a multiple of 4; frames overlap by
        three quarters.

    Raises
    ------
    ConfigError
        If there is no shift, one is not finite, both shifts and a law are given, or `frame` is no
        positive multiple of 4.

    Notes
    -----
    A phase vocoder: magnitudes of the short-time Fourier transform are stretched along frequency
    by ``a = 2^(cents / 1200)``; the frequency inside each bin, which the advance of its phase from
    frame to frame tells, is multiplied by a and summed up to the new phase. That is no linear map,
    so there is no adjoint, and estimators transform the data (`GroupCDF` its templates, if told to).

    References
    ----------
    Y. Mroueh, S. Voinea, T. Poggio, Learning with group invariant features: a kernel perspective,
    2015, section 6.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import PitchShift
    >>> tone = np.sin(2 * np.pi * 0.05 * np.arange(4000))[None]
    >>> octave_up = PitchShift((1200.0,)).act(1200.0, tone)
    >>> int(abs(np.fft.rfft(octave_up[0])).argmax())
    400
    """

    cents: tuple[float, ...] | None = None
    law: Law | None = None
    frame: int = 512
    n_axes: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frame < 4 or self.frame % 4:
            raise ConfigError(f"PitchShift(frame={self.frame}): the frame must be a positive multiple of 4")
        if self.cents is not None:
            self._store_listed("cents")

    @property
    def listed(self) -> tuple[float, ...] | None:
        """The shifts in cents, or None where the law draws them."""
        return self.cents

    @property
    def default_law(self) -> Law:
        """Law of the shift: ``Normal(200.0)``."""
        return Normal(200.0)

    @property
    def is_unitary(self) -> bool:
        """Whether inner products are preserved: no."""
        return False

    @property
    def has_adjoint(self) -> bool:
        """Whether templates can be transformed in place of the data: no, it is not linear."""
        return False

    def check(self, shape: Shape) -> None:
        """Check that samples are signals."""
        super().check(shape)
        if len(shape) != 1:
            raise InputError(
                f"samples of shape {shape}: PitchShift acts on signals; give an array (n_samples, n_times)"
            )

    def act(self, element: Element, X: Array) -> Array:
        """Shift the pitch of signals."""
        factor = 2 ** (element / CENTS_PER_OCTAVE)
        hop = self.frame // 4
        options = {"nperseg": self.frame, "noverlap": self.frame - hop}
        # The transform ends after the last whole hop: zeros keep it from cutting the signal.
        padded = np.pad(X, ((0, 0), (0, self.frame)))
        spectra = signal.stft(padded, **options)[2]
        # Phases counted from the middle of the frame agree among the bins of one tone.
        from_middle = (-1.0) ** np.arange(spectra.shape[1])[:, None]
        spectra *= from_middle
        sources = np.arange(spectra.shape[1]) / factor
        magnitude = _at_bins(np.abs(spectra), sources)
        frequency = factor * _frequencies(np.angle(spectra), hop)
        nearest = np.minimum(sources.round().astype(np.intp), spectra.shape[1] - 1)
        phase = 2 * np.pi * hop * np.cumsum(frequency[:, nearest], axis=2)
        shifted = signal.istft(from_middle * magnitude * np.exp(1j * phase), **options)[1]
        cut: Array = shifted[:, : X.shape[1]].astype(np.result_type(X, np.float32))
        return cut

    def adjoint(self, element: Element, X: Array) -> Array:  # noqa: ARG002
        """Refuse: the phase vocoder is not linear."""
        raise InputError(f"{self} has no adjoint, a phase vocoder not being linear: transform the data")

    def inverse(self, element: Element) -> Element:
        """Return the opposite shift."""
        return -element


def _frequencies(phase: Array, hop: int) -> Array:
    """Frequency in each bin and frame, in cycles per sample, from the phases (n, bins, frames)."""
    n_bins = phase.shape[1]
    centres = np.arange(n_bins)[:, None] / (2 * (n_bins - 1))
    advance = np.diff(phase, axis=2, prepend=0) / (2 * np.pi) - hop * centres
    frequency: Array = centres + (advance - advance.round()) / hop
    # Before the first frame there is none: its phase is taken over, stretched, as it is.
    frequency[:, :, 0] = phase[:, :, 0] / (2 * np.pi * hop)
    return frequency


def _at_bins(magnitude: Array, positions: Array) -> Array:
    """Magnitudes (n, bins, frames) at fractional bins, interpolated linearly; 0 beyond the last."""
    last = magnitude.shape[1] - 1
    below = np.minimum(np.floor(positions).astype(np.intp), last)
    above = np.minimum(below + 1, last)
    weight = (positions - below)[:, None]
    between = (1 - weight) * magnitude[:, below] + weight * magnitude[:, above]
    inside: Array = between * (positions <= last)[:, None]
    return inside


def _along_time(matrix: Any, X: Array) -> Array:
    """Apply a matrix along the first axis of each sample."""
    time_first = np.moveaxis(X, 1, 0)
    columns = np.ascontiguousarray(time_first).reshape(matrix.shape[1], -1)
    product = matrix @ columns.astype(matrix.dtype, copy=False)
    return np.ascontiguousarray(np.moveaxis(product.reshape(time_first.shape), 0, 1))
