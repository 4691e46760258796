"""A made-up benchmark that looks like a real one, reports of it, and the same with hostile names."""

import copy
from contextlib import contextmanager

import numpy as np
import pytest
from scipy import ndimage

from segkit.cli.phantom import make_demo_set
from segkit.evaluation.metrics import dice_of, iou_of, precision_of, recall_of
from segkit.report import Picture, write_report

SIZES, SEEDS, N_IMAGES = (1, 5, 15), range(3), 20
# title, IoU of the foreground from 1 image and from many
METHODS = {
    "segkit-vgg": ("segkit (VGG19)", 0.55, 0.74),
    "segkit-no-networks": ("segkit, no networks", 0.46, 0.62),
    "fcn": ("FCN, pre-trained", 0.25, 0.73),
    "unet": ("U-Net", 0.12, 0.60),
    "forest": ("Pixel forest", 0.42, 0.56),
}
HOSTILE = [
    "<script>alert(1)</script>",
    '" onload="alert(2)" \'<b>quoted</b>',
    "лезия 病变 🔬 é",
    "$\\frac{1}{0}$ costs 5$",
    "long-" + "name" * 60,
    "</style></script><img src=x onerror=alert(3)>",
    "undecodable \udcff",
]


def _listed(values):
    return [None if np.isnan(value) else float(value) for value in values]


def _record(method, n_train, seed, index, rng):
    _, low, high = METHODS[method]
    level = low + (high - low) * np.log(n_train) / np.log(15)
    iou = np.clip(level + 0.15 * np.sin(1.7 * index) + 0.06 * rng.standard_normal(), 0.02, 0.95)
    truth, total = 2500 + 90 * index, 256 * 256
    missed = false = int(truth * (1 - iou) / (1 + iou))
    if index == 7:  # an image without foreground, which some find all the same
        truth = missed = 0
        false = 0 if method == "segkit-vgg" or rng.random() < 0.6 else 300
    counts = np.array([[total - truth - false, false], [missed, truth - missed]])
    given = np.linspace(0.05, 0.95, 10)
    pixels = np.array([40000, 6000, 3000, 2000, 1500, 1200, 1300, 1500, 2500, 6536.0])
    hits = pixels * np.clip(given + (0.75 - low) / 2 * (0.5 - given), 0, 1)
    net = method in ("fcn", "unet")
    return {
        "method": method,
        "n_train": n_train,
        "seed": seed,
        "image": f"case-{index + 1:02d}",
        "group": None,
        "confusion": counts.tolist(),
        "iou": _listed(iou_of(counts)),
        "mean_iou": float(np.nanmean(iou_of(counts))),
        "dice": _listed(dice_of(counts)),
        "precision": _listed(precision_of(counts)),
        "recall": _listed(recall_of(counts)),
        "boundary_f": [None, None] if truth == 0 and false == 0 else [float(iou), float(0.9 * iou)],
        "brier": float(0.02 + 0.12 * (1 - iou)),
        "reliability": {
            "count": pixels.tolist(),
            "probability": (pixels * given).tolist(),
            "hits": hits.tolist(),
        },
        "predict_seconds": 0.3,
        "fit_seconds": 300.0 if net else 20.0,
        "peak_memory_mib": None if method == "unet" else 2000.0,
    }


def _explanation(rng):
    gammas = 1e-4 * 2.0 ** np.arange(-6, 7)
    score = 0.05 + 0.4 * np.exp(-((np.arange(13) - 5) ** 2) / 9)
    layers = {"conv1_1": 3, "conv1_2": 9, "conv2_1": 14, "conv2_2": 22, "conv3_1": 18, "conv3_4": 62}
    half = 120
    label = np.repeat([0, 1], half)
    apart, mixed = (
        rng.standard_normal((2 * half, 2)) * 4 + shift * np.column_stack([label, label]) for shift in (18, 1)
    )
    return {
        "kept_channels": layers,
        "n_channels": 1408,
        "kernels": [
            {
                "name": f"gaussian gamma={gamma:.3g}",
                "gamma": float(gamma),
                "weight": float(value / score.sum()),
                "score": float(value),
            }
            for gamma, value in zip(gammas, score, strict=True)
        ],
        "criterion": "mmd",
        "words": ["Channels: 128 were kept.", "Mean IoU to expect on other images: 0.712."],
        "threshold": 0.12,
        "embedding": [
            {
                "title": f"{which} MMD, gamma = {gammas[place]:.3g}",
                "gamma": float(gammas[place]),
                "xy": xy.tolist(),
                "label": label.tolist(),
            }
            for which, place, xy in (("highest", 5, apart), ("lowest", 12, mixed))
        ],
    }


def _unit(method, n_train, seed, test, rng):
    net, ours = method in ("fcn", "unet"), method == "segkit-vgg"
    return {
        "method": method,
        "n_train": n_train,
        "seed": seed,
        "train": [f"train-{index}" for index in range(n_train)],
        "test": test,
        "fit_seconds": float((280 if net else 14) * (1 + 0.1 * rng.random()) + 3 * n_train),
        "predict_seconds": float(0.2 + 0.1 * rng.random()),
        "peak_memory_mib": None if method == "unet" else float(1200 + 60 * n_train),
        "device": "cuda:0" if net else "cpu",
        "budget_limited": bool(seed == 1) if net else None,
        "notes": ["VGG19 weights reach to conv3_4"] if ours else [],
        "explain": _explanation(rng) if ours and (n_train, seed) == (5, 0) else None,
    }


def make_result():
    """Result of a made-up benchmark, as results.json holds it."""
    rng = np.random.default_rng(0)
    records, units = [], []
    for seed in SEEDS:
        tested = np.random.default_rng(seed).permutation(N_IMAGES)[:14].tolist()
        for method in METHODS:
            for n_train in SIZES:
                if (method, n_train, seed) == ("unet", 15, 1):
                    continue
                run = [_record(method, n_train, seed, index, rng) for index in tested]
                records += run
                units.append(_unit(method, n_train, seed, [record["image"] for record in run], rng))
    return {
        "format_version": 1,
        "name": "angiodysplasia_demo",
        "label_map": {"values": [0, 255], "names": ["background", "lesion"], "unlabelled": None},
        "methods": {
            method: {"title": title, "kind": method.split("-")[0], "config": {}}
            for method, (title, *_) in METHODS.items()
        },
        "train_sizes": list(SIZES),
        "seeds": list(SEEDS),
        "tolerance": 2.0,
        "left_out": [{"n_train": 30, "reason": "40 images leave only 26 to train on"}],
        "failures": [{"method": "unet", "n_train": 15, "seed": 1, "error": "CUDA out of memory"}],
        "units": units,
        "records": records,
        "pictures": {"n_train": 5, "seed": 0},
        "manifest": {
            "written": "2025-01-01T12:00:00+00:00",
            "versions": {"segkit": "0.3.0", "numpy": "2.4"},
            "machine": {"processor": "2 cores", "memory_gib": 24},
            "data": {"sha256": "0123456789abcdef"},
        },
    }


class _Pictures:
    """Made-up predictions: the truth, shifted and blurred, the more so the worse the method."""

    def __init__(self, shape=(64, 64)):
        self.images, self.masks = make_demo_set(N_IMAGES, shape=shape)

    def __call__(self, method, n_train, seed, image):
        index = int("".join(filter(str.isdigit, image))) - 1 if image.startswith("case-") else 0
        truth = self.masks[index].astype(int) * (index != 7)
        blur = truth.shape[0] / 70 * (1 + 5 * (1 - METHODS.get(method, ("", 0.5, 0.5))[2]))
        field = ndimage.gaussian_filter(np.roll(truth, int(blur), axis=1).astype(np.float32), blur)
        foreground = field / max(field.max(), 1e-6)
        return Picture(
            self.images[index],
            truth,
            (foreground > 0.5).astype(int),
            np.stack([1 - foreground, foreground], axis=2),
        )


def _rename(result):
    """Give images, methods, classes and whatever else a user names the worst of names; two methods and sizes will do."""
    hostile = copy.deepcopy(result)
    hostile["methods"] = {method: hostile["methods"][method] for method in ("segkit-vgg", "unet")}
    for part in ("records", "units"):
        hostile[part] = [
            entry
            for entry in hostile[part]
            if entry["n_train"] in (1, 5) and entry["method"] in hostile["methods"]
        ]
    images = {f"case-{index + 1:02d}": f"{name}.png" for index, name in enumerate(HOSTILE)}
    for record in hostile["records"]:
        record["image"] = images.get(record["image"], record["image"])
    for entry, name in zip(hostile["methods"].values(), HOSTILE, strict=False):
        entry["title"] = name
    hostile["label_map"]["names"] = ["$x_{1}$ <b>", HOSTILE[1]]
    hostile["name"] = HOSTILE[0]
    hostile["failures"][0]["error"] = HOSTILE[5]
    hostile["left_out"][0]["reason"] = HOSTILE[1]
    hostile["units"][0]["notes"] = [HOSTILE[0]]
    hostile["units"][0]["device"] = HOSTILE[0]
    hostile["manifest"]["name"] = HOSTILE[5]
    for unit in hostile["units"]:
        if unit["explain"]:
            unit["explain"]["kept_channels"][HOSTILE[0]] = 5
            unit["explain"]["kernels"][0]["name"] = HOSTILE[3]
            unit["explain"]["words"][0] = HOSTILE[4]
            unit["explain"]["embedding"][0]["title"] = HOSTILE[5]
    return hostile


@pytest.fixture(scope="session")
def result():
    return make_result()


@pytest.fixture(scope="session")
def hostile_result(result):
    return _rename(result)


@pytest.fixture(scope="session")
def pictures():
    return _Pictures()


@pytest.fixture(scope="session")
def evaluation(result):
    """The same dict as `segkit evaluate` makes it: one method, no runs, no probabilities."""
    run = [
        record | {"n_train": 0, "seed": 0, "brier": None, "reliability": None}
        for record in result["records"]
        if (record["method"], record["n_train"], record["seed"]) == ("forest", 5, 0)
    ]
    return result | {
        "methods": {"forest": {"title": "the predictions", "kind": "folder", "config": {}}},
        "train_sizes": [],
        "seeds": [],
        "left_out": [],
        "failures": [],
        "units": [],
        "records": run[:8],
        "pictures": {"n_train": 0, "seed": 0},
    }


@contextmanager
def _few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("segkit.evaluation.statistics.N_RESAMPLES", 300)
        yield


@pytest.fixture(scope="session")
def few_resamples():
    """A context in which intervals take little time."""
    return _few_resamples


@pytest.fixture(scope="session")
def report(result, pictures, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "index.html"
    with _few_resamples():
        write_report(result, path, pictures, scores_file="results.csv")
    return path


@pytest.fixture(scope="session")
def hostile_report(hostile_result, pictures, tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "index.html"
    with _few_resamples():
        write_report(hostile_result, path, pictures, title=HOSTILE[0])
    return path


@pytest.fixture(scope="session")
def hostile_names():
    return HOSTILE
