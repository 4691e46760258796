"""Kernel selection on six data sets of the ASU repository (004 Figures 1 and 2).

    python -m benchmarks.asu --data DATA/kernel-data [--quick] [--out FILE]

For each split, conditional covariance minimisation ranks features on the training part, from 100 features
down to 5, each start the minimum before. At each number of features the bandwidth of a Gaussian kernel is
chosen by 5-fold cross-validation and by the rooted unbiased MMD, both on the training part; the third rule
takes the mixture of all kernels, weighted by MMD. A support vector classifier, one class against the rest,
is then scored on the other part. A run that was cut goes on where it stopped; remove the file to start anew.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.datasets import make_classification
from sklearn.metrics import euclidean_distances
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.common import markdown_table, result_path, with_interval
from benchmarks.selection_common import Records
from benchmarks.tables.common import DATA, MissingDataError
from segkit.evaluation.statistics import student_interval
from segkit.kernels import mixture_weights, mmd
from segkit.selection import ConditionalCovarianceSelector
from segkit.selection.covariance import EXACT_UP_TO

Floats = NDArray[np.float64]

SETS = ("basehock", "pcmac", "arcene", "isolet", "orl", "warppie10p")
N_FEATURES = tuple(range(100, 0, -5))
# The paper's range, every decade only where accuracies change on standardised features.
GAMMAS = 10.0 ** np.array([-20, -10, -5, -4, -3, -2, -1, 0, 1, 3])
N_FOLDS = 5
TEST_SIZE = 0.3
RULES = ("cv", "mmd", "mixture")
# C of n training samples, and at which numbers of features: lambda of eq. 7.17 is 1 / (n C).
PENALTIES: dict[str, tuple[Callable[[int], float], slice]] = {
    "C = 1": (lambda n: 1.0, slice(None)),  # noqa: ARG005
    "lambda = 1": (lambda n: 1 / n, slice(None, None, 5)),
}
NOTES = [
    f"Splits: StratifiedShuffleSplit(test_size={TEST_SIZE}, random_state=split); features are selected and standardised on "
    "the training part. The paper does not say which part its features were selected on.",
    f"Features: ConditionalCovarianceSelector().path, exact up to {EXACT_UP_TO} training samples, else random features.",
    f"Bandwidths: gamma = {', '.join(f'{gamma:.0e}' for gamma in GAMMAS)} on standardised features.",
    "lambda = 1 (eq. 7.17) is C = 1 / n; it is measured at every fifth number of features.",
    "Seconds are processor seconds of choosing the bandwidth, feature selection apart.",
    "Bands are 95 % intervals of Student's t over splits, with the variance that splits of the same samples have in "
    "common (C. Nadeau, Y. Bengio, Inference for the generalization error, Machine Learning 52, 2003).",
]


def measure(
    X: Floats, y: NDArray[Any], split: int, n_features: Sequence[int], gammas: Floats
) -> dict[str, Any]:
    """Compare the rules on one split."""
    train, test = next(StratifiedShuffleSplit(1, test_size=TEST_SIZE, random_state=split).split(X, y))
    start = time.process_time()
    selector = ConditionalCovarianceSelector(n_features[0], random_state=split)
    weights = selector.path(X[train], y[train], n_features)
    record: dict[str, Any] = {
        "n_train": len(train),
        "path_seconds": time.process_time() - start,
        "n_features": list(n_features),
        "gammas": gammas.tolist(),
        "penalties": {},
    }
    if len(train) <= EXACT_UP_TO:
        selector.fit(X[train], y[train])
        record |= {"sigma": selector.sigma_, "objective": selector.loss_}
    for penalty, (cost, sizes) in PENALTIES.items():
        found = []
        for m, w in zip(n_features[sizes], weights[sizes], strict=True):
            columns = np.argsort(-w, kind="stable")[:m]
            scaler = StandardScaler().fit(X[train][:, columns])
            rows, others = (scaler.transform(X[part][:, columns]) for part in (train, test))
            found.append(compare(rows, y[train], others, y[test], gammas, cost))
        record["penalties"][penalty] = {
            "curve": found[0].pop("curve"),
            "rules": {
                rule: {key: [entry[rule][key] for entry in found] for key in found[0][rule]} for rule in RULES
            },
        }
    return record | {"seconds": time.process_time() - start}


def compare(
    X: Floats,
    y: NDArray[Any],
    test_X: Floats,
    test_y: NDArray[Any],
    gammas: Floats,
    cost: Callable[[int], float],
) -> dict[str, Any]:
    """Accuracy, bandwidth and seconds of each rule, and what cross-validation and MMD say of each gamma."""
    squared, test_squared = euclidean_distances(X, squared=True), euclidean_distances(test_X, X, squared=True)
    start = time.process_time()
    discrepancies = [mmd(np.exp(-gamma * squared), y) for gamma in gammas]
    mmd_seconds = time.process_time() - start
    start = time.process_time()
    validated = [cross_validate(np.exp(-gamma * squared), y, cost) for gamma in gammas]
    cv_seconds = time.process_time() - start

    found: dict[str, Any] = {"curve": {"mmd": discrepancies, "cv": validated}}
    weights = np.eye(len(gammas))
    choices = {
        "cv": (weights[np.argmax(validated)], cv_seconds),
        "mmd": (weights[np.argmax(discrepancies)], mmd_seconds),
        "mixture": (mixture_weights(discrepancies), mmd_seconds),
    }
    for rule, (w, seconds) in choices.items():
        K, test_K = (mixture(w, gammas, distances) for distances in (squared, test_squared))
        found[rule] = {
            "accuracy": float(np.mean(classify(K, y, test_K, cost(len(y))) == test_y)),
            "gamma": None if rule == "mixture" else float(gammas[np.argmax(w)]),
            "seconds": round(seconds, 5),
        }
    return found


def mixture(weights: Floats, gammas: Floats, squared: Floats) -> Floats:
    """Weighted sum of Gaussian kernels (eq. 4.7)."""
    parts = [w * np.exp(-gamma * squared) for w, gamma in zip(weights, gammas, strict=True) if w > 0]
    total: Floats = np.sum(parts, axis=0)
    return total


def cross_validate(K: Floats, y: NDArray[Any], cost: Callable[[int], float]) -> float:
    """Mean accuracy over five stratified folds."""
    accuracies = []
    for train, test in StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(K, y):
        guess = classify(K[np.ix_(train, train)], y[train], K[np.ix_(test, train)], cost(len(train)))
        accuracies.append(np.mean(guess == y[test]))
    return float(np.mean(accuracies))


def classify(K: Floats, y: NDArray[Any], test_K: Floats, C: float) -> NDArray[Any]:
    """Class of the largest decision, each class against the rest."""
    classes = np.unique(y)
    positive = classes[1:] if len(classes) == 2 else classes
    # The checks of thousands of small fits would take longer than the fits.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        decisions = [_decisions(K, y == label, test_K, C) for label in positive]
    winner = decisions[0] > 0 if len(classes) == 2 else np.argmax(decisions, axis=0)
    return np.asarray(classes[winner.astype(np.intp)])


def _decisions(K: Floats, positive: NDArray[np.bool_], test_K: Floats, C: float) -> Floats:
    svc = SVC(C=C, kernel="precomputed").fit(K, positive)
    return np.asarray(test_K[:, svc.support_] @ svc.dual_coef_[0] + svc.intercept_[0])


def summarise(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for each set, penalty and number of features, and their mean: accuracies and seconds over splits."""
    groups: dict[tuple[str, str, int | str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        for penalty, (_, sizes) in PENALTIES.items():
            rules = record["penalties"][penalty]["rules"]
            for place, m in enumerate(record["n_features"][sizes]):
                groups[record["set"], penalty, m].append(
                    {
                        rule: {key: values[place] for key, values in columns.items()}
                        for rule, columns in rules.items()
                    }
                )
            groups[record["set"], penalty, "all"].append(
                {
                    rule: {
                        "accuracy": np.mean(columns["accuracy"]),
                        "seconds": np.mean(columns["seconds"]),
                        "gamma": None if rule == "mixture" else np.median(columns["gamma"]),
                    }
                    for rule, columns in rules.items()
                }
            )
    return [
        {"set": name, "penalty": penalty, "n_features": m, **_summary(splits)}
        for (name, penalty, m), splits in groups.items()
    ]


def _summary(splits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    accuracies = {rule: np.array([split[rule]["accuracy"] for split in splits]) for rule in RULES}
    seconds = {rule: float(np.mean([split[rule]["seconds"] for split in splits])) for rule in RULES}
    return {
        "n_splits": len(splits),
        "accuracy": {rule: _mean(values) for rule, values in accuracies.items()},
        "gap_to_cv": {rule: _mean(accuracies[rule] - accuracies["cv"]) for rule in RULES[1:]},
        "median_gamma": {
            rule: float(np.median([split[rule]["gamma"] for split in splits])) for rule in RULES[:2]
        },
        "seconds": seconds,
        "time_ratio": seconds["cv"] / seconds["mmd"],
    }


def _mean(values: Floats) -> dict[str, Any]:
    """Mean over splits, with the corrected interval of Nadeau and Bengio where there are two or more."""
    interval = None
    if len(values) > 1:
        interval = list(student_interval(values, test_to_train=TEST_SIZE / (1 - TEST_SIZE)))
    return {"value": float(np.mean(values)), "interval": interval}


def beside_oracle(
    records: Iterable[dict[str, Any]], oracle: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Our selection of 100 features beside the best of an independent one on the same split."""
    for record in records:
        runs = [run for run in oracle if (run["data"], run["seed"]) == (record["set"], record["split"])]
        if not runs or "objective" not in record or record["n_features"][0] != 100:
            continue
        theirs = min(runs, key=lambda run: run["loss1"])
        ours = record["penalties"]["C = 1"]["rules"]["cv"]
        yield {
            "set": record["set"],
            "split": record["split"],
            "objective": record["objective"],
            "oracle_objective": theirs["loss1"],
            "accuracy": ours["accuracy"][0],
            "gamma": ours["gamma"][0],
            "oracle_accuracy": theirs["ccm100"][0],
            "oracle_gamma": theirs["ccm100"][1],
        }


def report(
    records: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], compared: Sequence[dict[str, Any]]
) -> str:
    """Write accuracies at some numbers of features, the scores of each gamma at the most, and the oracle's."""
    shown = {m for record in records for m in (*record["n_features"][::5], record["n_features"][-1])} | {
        "all"
    }
    header = ["set", "penalty", "features", "splits", "accuracy: CV", "MMD", "mixture", "MMD less CV",
              "mixture less CV", "CV, s", "MMD, s", "times faster"]  # fmt: skip
    accuracies = markdown_table(
        header,
        (
            [
                *(row[name] for name in ("set", "penalty", "n_features", "n_splits")),
                *(with_interval(**row["accuracy"][rule]) for rule in RULES),
                *(with_interval(**row["gap_to_cv"][rule]) for rule in RULES[1:]),
                row["seconds"]["cv"],
                row["seconds"]["mmd"],
                f"{row['time_ratio']:.0f}",
            ]
            for row in rows
            if row["n_features"] in shown
        ),
    )
    curves = markdown_table(["set", "penalty", "gamma", "CV accuracy", "MMD"], _curves(records))
    text = f"{accuracies}\n{curves}"
    if compared:
        text += "\n" + markdown_table(list(compared[0]), ([*row.values()] for row in compared))
    return text


def _curves(records: Iterable[dict[str, Any]]) -> Iterator[list[Any]]:
    """Rows of Figure 1: what both scores say of each gamma at the largest number of features."""
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    gammas: Sequence[float] = ()
    for record in records:
        gammas = record["gammas"]
        for penalty, found in record["penalties"].items():
            groups[record["set"], penalty].append([found["curve"]["cv"], found["curve"]["mmd"]])
    for (name, penalty), values in groups.items():
        for gamma, accuracies, discrepancies in zip(gammas, *np.transpose(values, (1, 2, 0)), strict=True):
            yield [
                name,
                penalty,
                f"{gamma:.0e}",
                with_interval(**_mean(accuracies)),
                with_interval(**_mean(discrepancies)),
            ]


def read_set(folder: Path, name: str) -> tuple[Floats, NDArray[Any]]:
    file = folder / name / f"{name}.npz"
    if not file.is_file():
        raise MissingDataError(f"no {file}: give the folder that holds {name} with --data")
    with np.load(file) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"]


def run(
    name: str,
    X: Floats,
    y: NDArray[Any],
    splits: Iterable[int],
    n_features: Sequence[int],
    records: Records,
    n_jobs: int,
) -> None:
    """Measure the splits of one set that are missing."""
    missing = [split for split in splits if not records.holds(set=name, split=split)]
    measured = Parallel(n_jobs, return_as="generator")(
        delayed(measure)(X, y, split, n_features, GAMMAS) for split in missing
    )
    for split, record in zip(missing, measured, strict=True):
        records.add({"set": name, "split": split, **record})
        print(name, split, f"({record['seconds']:.0f} processor seconds)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA / "kernel-data")
    parser.add_argument("--oracle", type=Path, default=DATA / "oracle" / "asu_ccm100_converged.json")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="splits measured at the same time")
    parser.add_argument("--quick", action="store_true", help="made-up data, few features: does it run?")
    parser.add_argument("--out", type=Path, help="result file, a .md beside it")
    arguments = parser.parse_args()
    settings = {
        "n_features": list(N_FEATURES),
        "gammas": GAMMAS.tolist(),
        "n_folds": N_FOLDS,
        "penalties": list(PENALTIES),
        "exact_up_to": EXACT_UP_TO,
    }
    identity = ("set", "split")
    records = Records(
        result_path(arguments, "asu.json"), identity, NOTES, settings, resume=not arguments.quick
    )
    if arguments.quick:
        X, y = make_classification(90, 12, n_informative=4, n_classes=3, random_state=0)
        run("made-up", X, y, range(2), (6, 4, 2), records, arguments.jobs)
    for name in () if arguments.quick else arguments.sets:
        try:
            X, y = read_set(arguments.data, name)
        except MissingDataError as error:
            raise SystemExit(str(error)) from error
        run(name, X, y, range(arguments.splits), N_FEATURES, records, arguments.jobs)
    oracle = json.loads(arguments.oracle.read_text()) if arguments.oracle.is_file() else []
    rows, compared = summarise(records.records), list(beside_oracle(records.records, oracle))
    records.write(summary=rows, oracle=compared)
    records.report(report(records.records, rows, compared))


if __name__ == "__main__":
    main()
