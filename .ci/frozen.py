"""Freeze what segkit does, and compare: masks, decisions, objects, a live session, and what the commands print and write.

    python .ci/frozen.py make FOLDER [--quick]
    python .ci/frozen.py compare BEFORE AFTER

`make` stores, for two sets, both recipes and 1 and 5 training images: masks, decisions, probabilities, objects and their
table; what a live session shows after twenty strokes; and the output and files of each command on a small folder.
`--quick` leaves the models of the two sets out. `compare` ends with status 1 if more than one pixel of 100,000 differs, or a
number by more than one part in a million of the largest of its kind; text that differs is shown, to be judged by eye.
It goes when the code has its final shape.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

SHARED = Path(os.environ.get("SEGKIT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
SETS = ("dsb2018_stained", "kvasir_seg_256")
N_TEST = 6
N_STROKES = 20
MOST_PIXELS = 1e-5
MOST_RELATIVE = 1e-6
# Rounding differs with the number of threads.
MOST_DECISION = 1e-4
# What differs from run to run: seconds, sizes, dates, folders, versions.
_VARIES = re.compile(
    r"\d+(\.\d+)? ?(seconds?|s|ms|minutes?|min|MB|GiB|MiB|kB|KiB)\b|\b20\d\d-\d\d-\d\d\S*|\b\d+:\d\d(:\d\d)?\b"
)
# Progress, and notes of segkit to itself.
_LEFT_OUT = re.compile(r".*: \d+ of \d+\n|.*/\.segkit/.*\n")


def run(*words: object, cwd: Path, log: Path | None = None) -> None:
    """Run a command of segkit; its status and what it prints are kept in a file."""
    command = [sys.executable, "-m", "segkit", *map(str, words)]
    environment = os.environ | {
        "PYTHONPATH": str(Path.cwd()),
        "COLUMNS": "100",
        "SEGKIT_CACHE": str(cwd / "cache"),
    }
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, check=False)
    if log is None:
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)}:\n{ended.stdout}{ended.stderr}")
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(
        f"status {ended.returncode}\n{ended.stdout}--- stderr\n{ended.stderr}".replace(str(cwd), ".")
    )


def two_networks() -> str:
    """Fill the recipe of two networks with weights of files."""
    import yaml

    recipe = yaml.safe_load((Path("configs") / "two-networks.yaml").read_text())
    files = {
        "vgg19": SHARED / "weights" / "vgg19_conv1_1-conv3_4_rgb_f32.npz",
        "squeezenet1_0": SHARED / "weights" / "squeezenet1_0_rgb_f32.npz",
    }
    for bank in recipe["bank"]:
        for part in bank["banks"]:
            if part["name"] in files:
                part |= {"weights": str(files[part["name"]]), "preprocessing": "caffe"}
    return yaml.safe_dump(recipe)


def link(stems: list[str], source: Path, target: Path) -> Path:
    """Make a folder of copies of files."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for stem in stems:
        shutil.copy(source / f"{stem}.png", target / f"{stem}.png")
    return target


def freeze_models(
    out: Path, work: Path, folder: Path, name: str, recipes: dict[str, str], sizes: tuple[int, ...]
) -> None:
    """Store what models of one set predict."""
    import segkit
    from segkit.benchmark import few_shot_split
    from segkit.images import read_image

    truth = "instances" if (folder / "instances").is_dir() else "masks"
    stems = [path.stem for path in (folder / "images").iterdir()]
    for n in sizes:
        found = few_shot_split(stems, n, 0)
        images = link(list(found.train), folder / "images", work / "images")
        masks = link(list(found.train), folder / truth, work / "masks")
        test = link(list(found.test)[:N_TEST], folder / "images", work / "test")
        for recipe, text in recipes.items():
            target = out / "models" / f"{name}-{recipe}-{n}"
            config = work / "recipe.yaml"
            config.write_text(text)
            model = work / "model.segkit"
            target.mkdir(parents=True)
            objects = ["--set", "data.masks=instances"] if truth == "instances" else []
            options = ["--config", config] if text else []
            run("train", images, masks, "-o", model, *options, *objects, "--overwrite", cwd=work)
            options = ["--objects"] if truth == "instances" else []
            run("predict", model, test, "-o", target / "predicted", "--probability", *options, cwd=work)
            segmenter = segkit.load(model)
            decisions = {
                path.stem: segmenter.decision_function(read_image(path)[0]) for path in sorted(test.iterdir())
            }
            np.savez_compressed(target / "decisions.npz", **decisions)
            print(target.name, flush=True)


def strokes_of(mask: np.ndarray, n: int) -> list[tuple[tuple[int, int], np.ndarray, int]]:
    """Choose strokes, small discs well within a class, one class after the other."""
    from scipy import ndimage

    found = []
    depths = [ndimage.distance_transform_edt(np.pad(mask == value, 1))[1:-1, 1:-1] for value in (0, 1)]
    for place in range(n):
        depth = depths[place % 2]
        row, col = np.unravel_index(int(depth.argmax()), depth.shape)
        radius = max(1, min(6, int(depth[row, col] / 2)))
        top, left = max(0, row - radius), max(0, col - radius)
        rows, cols = np.ogrid[top : row + radius + 1, left : col + radius + 1]
        disc = (rows - row) ** 2 + (cols - col) ** 2 <= radius**2
        disc = disc[: mask.shape[0] - top, : mask.shape[1] - left]
        found.append(((int(top), int(left)), disc, place % 2))
        depth[max(0, row - 3 * radius) : row + 3 * radius, max(0, col - 3 * radius) : col + 3 * radius] = 0
    return found


def freeze_live(out: Path, work: Path, images: Path, masks: Path, name: str) -> None:
    """Store what a live session shows after twenty strokes on two images."""
    from skimage.io import imread

    from segkit.live import FeatureCache, LiveSession, Project

    project = work / "project"
    shutil.rmtree(project, ignore_errors=True)
    keys = sorted(path.stem for path in images.iterdir())[:2]
    with (
        Project(images, project) as annotations,
        LiveSession(annotations, cache=FeatureCache(work / "cache")) as session,
    ):
        for key in keys:
            session.open(key)
            mask = imread(masks / f"{key}.png")
            for corner, disc, value in strokes_of((mask > 0).astype(int), N_STROKES // 2):
                session.paint(key, corner, disc, value)
                session.wait(600)
        (out / "live").mkdir(parents=True, exist_ok=True)
        shown = {}
        for key in keys:
            shown[f"{key} mask"], shown[f"{key} probability"] = session.predict(key)
        np.savez_compressed(out / "live" / f"{name}.npz", **shown)
    print("live", name, flush=True)


def freeze_commands(out: Path, work: Path) -> None:
    """Store what each command prints and writes on a small folder."""
    nuclei = SHARED / "data" / "dsb2018_stained"
    stems = sorted(path.stem for path in (nuclei / "images").iterdir())
    train = link(stems[:3], nuclei / "images", work / "small" / "train" / "images")
    test = link(stems[3:7], nuclei / "images", work / "small" / "test" / "images")
    link(stems[:3], nuclei / "masks", work / "small" / "train" / "masks")
    link(stems[3:7], nuclei / "masks", work / "small" / "test" / "masks")
    logs, made = out / "commands", out / "commands" / "files"
    made.mkdir(parents=True, exist_ok=True)
    masks = train.parent / "masks"
    run("train", train, masks, "-o", "model.segkit", "--overwrite", cwd=work, log=logs / "train.txt")
    fast = ("-o", "fast.segkit", "--config", "fast", "--overwrite")
    run("train", train, masks, *fast, cwd=work, log=logs / "train-fast.txt")
    run("inspect", "fast.segkit", "--explain", cwd=work, log=logs / "inspect-fast.txt")
    predict = ("predict", "model.segkit", test, "-o", made / "predict", "--overwrite")
    run(*predict, "--probability", "--overlay", "--objects", cwd=work, log=logs / "predict.txt")
    run(
        "predict",
        "model.segkit",
        test,
        "-o",
        made / "dry",
        "--dry-run",
        cwd=work,
        log=logs / "predict-dry.txt",
    )
    run(
        "evaluate",
        made / "predict",
        test.parent / "masks",
        "-o",
        made / "evaluate",
        cwd=work,
        log=logs / "evaluate.txt",
    )
    run(
        "measure",
        test.parent / "masks",
        "-o",
        made / "measure",
        "--images",
        test,
        cwd=work,
        log=logs / "measure.txt",
    )
    methods = ("--methods", "segkit-no-networks,forest", "--train-sizes", "1,2", "--seeds", "1")
    run("benchmark", train, masks, "-o", made / "benchmark", *methods, cwd=work, log=logs / "benchmark.txt")
    run("inspect", "model.segkit", "--explain", cwd=work, log=logs / "inspect-model.txt")
    run("inspect", train, masks, cwd=work, log=logs / "inspect-pairs.txt")
    run("inspect", test, cwd=work, log=logs / "inspect-images.txt")
    run("demo", "-o", made / "demo", cwd=work, log=logs / "demo.txt")
    run("demo", "--objects", "-o", made / "demo-objects", cwd=work, log=logs / "demo-objects.txt")
    from segkit.cli.commands import COMMANDS

    for command in ("", *COMMANDS):
        run(*command.split(), "--help", cwd=work, log=logs / f"help-{command or 'segkit'}.txt")
    files = sorted(
        path.relative_to(made).as_posix()
        for path in made.rglob("*")
        if path.is_file() and ".segkit" not in path.parts
    )
    (logs / "files.txt").write_text("\n".join(files) + "\n")
    for path in made.rglob("*"):
        if path.is_file() and (path.suffix == ".segkit" or path.suffix in (".html", ".jpg")):
            path.unlink()
    print("commands", flush=True)


def make(out: Path, *, quick: bool) -> None:
    """Store all."""
    out = out.resolve()
    work = out / "work"
    shutil.rmtree(out, ignore_errors=True)
    work.mkdir(parents=True)
    recipes = {"default": "", "two-networks": two_networks()}
    for name in SETS[:1] if quick else SETS:
        if not quick:
            freeze_models(out, work, SHARED / "data" / name, name, recipes, (1, 5))
        freeze_live(out, work, SHARED / "data" / name / "images", SHARED / "data" / name / "masks", name)
    freeze_commands(out, work)
    shutil.rmtree(work)


def differ_arrays(before: np.ndarray, after: np.ndarray, *, is_mask: bool) -> str:
    """Say how two arrays differ, or nothing."""
    if before.dtype.kind not in "biuf":
        return "" if np.array_equal(before, after) else "values differ"
    if before.shape != after.shape:
        return f"shape {before.shape}, now {after.shape}"
    if is_mask:
        share = float((before != after).mean())
        return f"{share:.2g} of the pixels differ" if share > MOST_PIXELS else ""
    largest = float(np.abs(before.astype(float) - after).max())
    most = MOST_DECISION * max(1.0, float(np.abs(before.astype(float)).max()))
    return f"values differ by up to {largest:.2g}" if not largest <= most else ""


def differ_tables(before: Path, after: Path) -> str:
    """Say how two CSV files differ, or nothing."""
    one, other = (list(csv.DictReader(path.open())) for path in (before, after))
    if len(one) != len(other):
        return f"{len(one)} rows, now {len(other)}"
    faults = []
    if one and (changed := set(one[0]) ^ set(other[0])):
        faults.append(f"columns {sorted(changed)}")
    for key in sorted(set(one[0]) & set(other[0]) if one else ()):
        if any(word in key for word in ("second", "version", "memory")):
            continue
        for left, right in zip(one, other, strict=True):
            if left[key] == right[key]:
                continue
            try:
                a, b = float(left[key]), float(right[key])
            except ValueError:
                faults.append(f"{key}: {left[key]!r}, now {right[key]!r}")
                break
            if not math.isclose(a, b, rel_tol=MOST_RELATIVE, abs_tol=MOST_RELATIVE):
                faults.append(f"{key}: {a}, now {b}")
                break
    return "; ".join(faults)


def compare(before: Path, after: Path) -> int:
    """Compare two frozen folders; 1 if numbers differ."""
    from skimage.io import imread

    faults, texts = 0, 0
    names = [
        {
            path.relative_to(top).as_posix()
            for path in top.rglob("*")
            if path.is_file() and ".segkit" not in path.parts
        }
        for top in (before, after)
    ]
    for name in sorted(names[0] ^ names[1]):
        print(f"{'gone' if name in names[0] else 'new'}: {name}")
    for name in sorted(names[0] & names[1]):
        one, other = before / name, after / name
        found = ""
        if one.suffix == ".npz":
            with np.load(one) as a, np.load(other) as b:
                found = "; ".join(
                    f"{key}: {told}"
                    for key in a
                    if (told := differ_arrays(a[key], b[key], is_mask="mask" in key))
                )
        elif one.suffix in (".png", ".tif", ".tiff"):
            a, b = imread(one), imread(other)
            found = differ_arrays(a, b, is_mask=a.dtype.kind != "f")
        elif one.suffix == ".csv":
            found = differ_tables(one, other)
        elif one.suffix in (".txt", ".md"):
            lines = [
                _VARIES.sub(
                    "#", _LEFT_OUT.sub("", path.read_text()).replace(str(top.resolve()), "TOP")
                ).splitlines()
                for path, top in ((one, before), (other, after))
            ]
            told = list(difflib.unified_diff(*lines, lineterm="", n=0))[2:]
            texts += bool(told)
            print(
                "\n".join([f"text: {name}", *(f"    {line}" for line in told)]) if told else "",
                end="\n" if told else "",
            )
        elif one.suffix == ".json" and one.stat().st_size < 10**6:
            a, b = (json.loads(path.read_text()) for path in (one, other))
            keys = [set(part) if isinstance(part, dict) else set() for part in (a, b)]
            found = f"keys {sorted(keys[0] ^ keys[1])}" if keys[0] != keys[1] else ""
        if found:
            faults += 1
            print(f"DIFFERS: {name}: {found}")
    print(f"{len(names[0] & names[1])} files compared: {faults} differ, {texts} texts to look at")
    return int(faults > 0)


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("make")
    one.add_argument("folder", type=Path)
    one.add_argument("--quick", action="store_true")
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "make":
        sys.path.insert(0, str(Path.cwd()))
        make(given.folder, quick=given.quick)
    else:
        sys.exit(compare(given.before, given.after))


if __name__ == "__main__":
    main()
