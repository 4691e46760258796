"""Groups as maps of the plane, for callers that read images in a way of their own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from segkit.errors import ConfigError
from segkit.invariance.groups import Group, Matrix, Shape


class Similarity(NamedTuple):
    """A turn or reflection (2, 2) of (row, column) positions, an enlargement, and a factor of intensities."""

    turn: Matrix
    scale: float
    amplitude: float


def similarities(group: Group, shape: Shape) -> list[Similarity]:
    """List the turns, reflections and enlargements of which a group consists."""
    return [
        _similarity(group, group.plane_map(element), group.amplitude(element))
        for element in group.elements(shape)
    ]


def _similarity(group: Group, plane_map: Matrix, amplitude: float) -> Similarity:
    scale = np.sqrt(abs(np.linalg.det(plane_map[:2, :2])))
    # Rounding gives equal turns equal matrices, however they are composed.
    turn = (plane_map[:2, :2] / scale).round(14)
    if not np.allclose(turn @ turn.T, np.eye(2)) or plane_map[:2, 2].any():
        raise ConfigError(
            f"{group} does more than turn, reflect and enlarge about the centre: give such a group, as Rotation(16), "
            f"Dihedral() or Composition((Rotation(16), Scaling((0.9, 1, 1.1))))"
        )
    return Similarity(turn, float(scale.round(14)), round(amplitude, 14))
