"""Scores of images kept in a folder, so that the next evaluation scores only what has changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segkit import __version__
from segkit._files import write_text
from segkit.errors import OutputError
from segkit.evaluation.folders import TOLERANCE, score_image


class KeptScores:
    """Scores of `score_image`, found again by the digest of masks and probabilities."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._used: set[str] = set()

    def score(
        self,
        truth: NDArray[np.uint8],
        prediction: NDArray[np.uint8],
        probability: NDArray[np.float32] | None,
        n_classes: int,
    ) -> dict[str, Any]:
        """Score an image, unless it has been scored before; see `score_image`."""
        if self._folder is None:
            return score_image(truth, prediction, probability, n_classes, tolerance=TOLERANCE)
        name = f"{_digest(truth, prediction, probability, n_classes)}.json"
        self._used.add(name)
        path = self._folder / name
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # not scored yet, or damaged
            scores = score_image(truth, prediction, probability, n_classes, tolerance=TOLERANCE)
            with contextlib.suppress(OutputError):  # nothing is lost; the report is what counts
                write_text(path, json.dumps(scores, allow_nan=False) + "\n")
            return scores

    def forget_others(self) -> None:
        """Remove the scores that this evaluation did not use."""
        if self._folder is not None:
            for path in self._folder.glob("*.json"):
                if path.name not in self._used:
                    path.unlink(missing_ok=True)


def _digest(
    truth: NDArray[np.uint8],
    prediction: NDArray[np.uint8],
    probability: NDArray[np.float32] | None,
    n_classes: int,
) -> str:
    sha = hashlib.sha256(f"{_code()} {n_classes} {TOLERANCE}".encode())
    for array in (truth, prediction, probability):
        if array is not None:
            sha.update(f" {array.dtype.str} {array.shape} ".encode())
            sha.update(array.tobytes())
    return sha.hexdigest()


@cache
def _code() -> str:
    """Return a digest of the code that scores: scores of other code are not used."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return f"{__version__} " + hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
