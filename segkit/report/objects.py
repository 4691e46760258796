"""Scores of objects in a benchmark: of each method, and of each way to tell its predicted objects apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from segkit.benchmark.objects import LEARNT, SPLITTINGS, image_ap
from segkit.evaluation.statistics import bootstrap_interval
from segkit.report.summary import Interval, Record, clusters_of, runs_of, seeds_of


@dataclass(frozen=True)
class ObjectRow:
    """Scores of the objects of one method, told apart in one way, at one number of annotated images: means of records."""

    method: str
    splitting: str
    n_train: int | None
    n_true: int
    n_predicted: int
    ap_50: float | None
    mean_ap: float | None
    ap_50_interval: Interval | None
    mean_ap_interval: Interval | None
    count_error: float
    count_error_interval: Interval
    absolute_count_error: float

    def name(self, method: str) -> str:
        """Name the row: the method, and the splitting unless the method has learnt it."""
        return method if self.splitting == LEARNT else f"{method} + {self.splitting}"


def summarise_objects(records: Sequence[Record]) -> list[ObjectRow]:
    """Score the objects of each method at each number of annotated images."""
    counted = [record for record in records if "objects" in record]
    return [
        _row(method, n_train, splitting, run)
        for (method, n_train), run in runs_of(counted).items()
        for splitting in SPLITTINGS
        if splitting in run[0]["objects"]
    ]


def _row(method: str, n_train: int | None, splitting: str, run: Sequence[Record]) -> ObjectRow:
    counts: list[Mapping[str, Any]] = [record["objects"][splitting] for record in run]
    owners = list(zip(clusters_of(run), seeds_of(run), strict=True))
    known = [(ap, owner) for one, owner in zip(counts, owners, strict=True) if (ap := image_ap(one))]
    ap_50, mean_ap = [ap[0] for ap, _ in known], [float(np.mean(ap)) for ap, _ in known]
    of_known = [owner for _, owner in known]
    more = [one["n_predicted"] - one["n_true"] for one in counts]
    return ObjectRow(
        method,
        splitting,
        n_train,
        n_true=sum(one["n_true"] for one in counts),
        n_predicted=sum(one["n_predicted"] for one in counts),
        ap_50=float(np.mean(ap_50)) if known else None,
        ap_50_interval=_interval(ap_50, of_known) if known else None,
        mean_ap=float(np.mean(mean_ap)) if known else None,
        mean_ap_interval=_interval(mean_ap, of_known) if known else None,
        count_error=float(np.mean(more)),
        count_error_interval=_interval(more, owners),
        absolute_count_error=float(np.mean(np.abs(more))),
    )


def _interval(values: Sequence[float], owners: Sequence[tuple[int, int]]) -> Interval:
    """Interval over the image (or group) and the split of each record."""
    return bootstrap_interval(values, *zip(*owners, strict=True))
