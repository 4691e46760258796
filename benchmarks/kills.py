"""Kill train, predict, evaluate, benchmark and annotate at random; check that nothing is torn, lost or different afterwards.

    python -m benchmarks kills

An episode runs a command, kills it, runs it again (--resume, --overwrite), perhaps kills it again, and at last lets it end.
Half of the kills come after a random time, half at a random step of writing a file: before its folder is made, half way
through its content, before it is on the disk, before and after it gets its name. After each kill every file with a visible
name must be whole, and none that was there before may be missing. At the end all files equal those of an undisturbed run,
except the times that a benchmark tells. A training of networks goes on by the same command. Strokes are drawn by the session
behind `segkit annotate`; after a kill all of those are looked for that were told to be saved. Needs a system that can fork.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image

from benchmarks.rows import Row, Study, flat
from segkit._common import files as write
from segkit.cli.commands import main as segkit_main
from segkit.cli.phantom import make_demo_set
from segkit.images import write_image, write_mask
from segkit.live import FeatureCache, LiveSession, Project, Saved
from segkit.segmentation.segmenter import load

# Kills of each command among 1,000: a run of a benchmark takes seconds, as its methods are further processes.
SHARES = {"predict": 320, "evaluate": 150, "train": 220, "networks": 60, "annotate": 150, "benchmark": 100}
TITLES = {"networks": "`segkit train`, networks", "annotate": "drawing in `segkit annotate`"}
STEPS = ("folder", "half", "sync", "rename", "renamed")
_SMALL = ["--set", "bank.name=multiscale", "--set", "bank.sigma_max=3", "--set", "selection.n_features=8"]
_SMALL += ["--set", "selection.pixels=400", "--set", "training.pixels=600"]
_ONE_METHOD = ["--methods", "forest", "--set", "forest.n_estimators=4", "--set", "forest.training_pixels=400"]
_ONE_METHOD += ["--train-sizes", "1", "--seeds", "2"]
# Long enough to write its state once.
_NETWORKS = ["--set", "bank={name: tuned, weights: random, n_folds: 2, n_steps: 54, pyramid: [1]}"]
_NETWORKS += ["--set", "training.pixels=600"]
# Images, and those of them to train on.
N_IMAGES, N_TRAIN = 10, 4
# Strokes, in turn on the images and none over another; their size, first column, and the pause in seconds after each.
_STROKES, _SIZE, _COLUMN, _PAUSE = 30, (3, 20), 10, 0.02
_TOLD = ".told"  # file of the strokes that were told to be saved
_TIMES = ("fit_seconds", "predict_seconds", "peak_memory_mib", "written", "machine")
_LONGEST = 120.0  # seconds
# An episode goes on to another kill, unless chance stops it.
_MOST_ATTEMPTS, _STOPS = 12, 0.15


@dataclass
class Command:
    """A command that is killed: its arguments, those to go on, and where it writes."""

    name: str
    arguments: list[str]
    go_on: list[str]
    output: Path
    run: Callable[[], object] = segkit_main
    lost: Callable[[Path], list[str]] = lambda _: []  # further faults of the folder after a kill
    seconds: float = 0.0
    n_steps: int = 1
    expected: dict[str, str] = field(default_factory=dict)


def commands(folder: Path) -> list[Command]:
    """Make small images, and the commands that work on them."""
    images, masks = make_demo_set(N_IMAGES, shape=(64, 72))
    for index, (image, mask) in enumerate(zip(images, masks, strict=True)):
        part = "train" if index < N_TRAIN else "test"
        write_image(folder / part / "images" / f"{index}.png", image)
        write_mask(folder / part / "masks" / f"{index}.png", 255 * mask)
    data = {part: [str(folder / part / kind) for kind in ("images", "masks")] for part in ("train", "test")}
    model = folder / "model.segkit"
    run_command(["train", *data["train"], "-o", str(model), *_SMALL, "--quiet"])
    predicted = folder / "predicted"
    run_command(["predict", str(model), data["test"][0], "-o", str(predicted), "--quiet"])
    out = {name: folder / "out" / name for name in SHARES}
    return [
        Command(
            "train",
            ["train", *data["train"], "-o", str(out["train"] / "model.segkit"), *_SMALL],
            ["--overwrite"],
            out["train"],
        ),
        Command(
            "predict",
            [
                "predict",
                str(model),
                data["test"][0],
                "-o",
                str(out["predict"]),
                "--objects",
                "--probability",
                "--overlay",
            ],
            ["--resume"],
            out["predict"],
        ),
        Command(
            "evaluate",
            ["evaluate", str(predicted), data["test"][1], "-o", str(out["evaluate"])],
            ["--overwrite"],
            out["evaluate"],
        ),
        Command(
            "benchmark",
            ["benchmark", *data["train"], "-o", str(out["benchmark"]), *_ONE_METHOD],
            ["--resume"],
            out["benchmark"],
        ),
        Command(
            "networks",
            ["train", *data["train"], "-o", str(out["networks"] / "model.segkit"), *_NETWORKS],
            ["--overwrite"],
            out["networks"],
        ),
        Command(
            "annotate",
            [],
            [],
            out["annotate"],
            partial(draw, folder / "test" / "images", out["annotate"], folder / "cache"),
            lost_strokes,
        ),
    ]


def draw(images: Path, output: Path, cache: Path) -> None:
    """Draw the strokes that were not yet told to be saved, as the page does, and note what is told."""
    told, drawn = _told(output), dict[str, dict[int, int]]()

    def note(event: object) -> None:
        if isinstance(event, Saved):
            saved = [stroke for stroke, version in list(drawn[event.key].items()) if version <= event.version]
            with (output / _TOLD).open("a") as file:
                file.write("".join(f"{stroke}\n" for stroke in saved))

    with Project(images, output) as project, LiveSession(project, cache=FeatureCache(cache)) as session:
        session.subscribe(note)
        for stroke in range(_STROKES):
            if stroke not in told:
                place, row, value = _stroke(stroke)
                key = project.images[place].key
                of_image = drawn.setdefault(key, {})
                session.open(key)
                session.paint(key, (row, _COLUMN), np.ones(_SIZE, dtype=bool), value, stroke=stroke)
                of_image[stroke] = project.labels(key).version
                time.sleep(_PAUSE)


def lost_strokes(output: Path) -> list[str]:
    """List the strokes that were told to be saved and are not in the label images."""
    lost = []
    for stroke in sorted(_told(output)):
        place, row, value = _stroke(stroke)
        labels = output / "masks" / f"{N_TRAIN + place}.png"
        height, width = _SIZE
        pixels = np.asarray(Image.open(labels)) if labels.exists() else np.zeros((0, 0))
        drawn = pixels[row : row + height, _COLUMN : _COLUMN + width]
        if drawn.size != height * width or (drawn != value).any():
            lost.append(f"lost: stroke {stroke}")
    return lost


def _told(output: Path) -> set[int]:
    path = output / _TOLD
    return {int(line) for line in path.read_text().split("\n")[:-1]} if path.exists() else set()


def _stroke(number: int) -> tuple[int, int, int]:
    """Return the place of the image, the first row and the class of a stroke."""
    turn, place = divmod(number, N_IMAGES - N_TRAIN)
    return place, 4 + 8 * turn, turn % 2


def run_command(
    arguments: list[str],
    run: Callable[[], object] = segkit_main,
    *,
    kill_after: float | None = None,
    kill_at: tuple[int, str] | None = None,
) -> int:
    """Run a command in a fork of this process, and return its exit status; killed, it is negative."""
    child = os.fork()
    if child == 0:
        _run_here(arguments, run, kill_at)
    deadline = time.monotonic() + (_LONGEST if kill_after is None else kill_after)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if kill_after is None:
                raise RuntimeError(f"segkit {' '.join(arguments)} hangs")
            return status
        time.sleep(0.002)


def _run_here(arguments: list[str], run: Callable[[], object], kill_at: tuple[int, str] | None) -> None:
    """Be the command, and end with its exit status."""
    status = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if kill_at is not None:
            _watch_steps(_killer(*kill_at))
        sys.argv = ["segkit", *arguments]
        run()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        os._exit(status)


def _killer(number: int, step: str) -> Callable[[str, Path], None]:
    """Return what kills this process at a step of writing the file of that number."""
    seen: Counter[str] = Counter()

    def killed_at(name: str, path: Path) -> None:
        seen[name] += 1
        if name == step and seen[name] == number:
            if step == "half" and path.exists():
                os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    return killed_at


def _watch_steps(tell: Callable[[str, Path], None]) -> None:
    """Call a function at each step of writing a file."""
    sync, name_of, replace = write._sync, write._temporary_name, Path.replace

    def temporary_name(path: Path) -> str:
        tell("folder", path)
        return name_of(path)

    def synced(path: Path) -> None:
        tell("half", path)
        tell("sync", path)
        sync(path)

    def replaced(path: Path, target: Path) -> Path:
        tell("rename", path)
        moved = replace(path, target)
        tell("renamed", target)
        return moved

    write._temporary_name, write._sync, Path.replace = temporary_name, synced, replaced  # type: ignore[method-assign]


def visible(output: Path) -> Iterator[Path]:
    """Yield the files of a folder that a user sees."""
    for path in sorted(output.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(output).parts):
            yield path


def fault_of(path: Path) -> str | None:
    """Describe what is torn of a file, if anything is."""
    try:
        content = path.read_bytes()
        if path.suffix == ".png":
            with Image.open(io.BytesIO(content)) as image:
                image.load()
        elif path.suffix == ".tif":
            tifffile.imread(io.BytesIO(content))
        elif path.suffix in (".json", ".geojson"):
            json.loads(content)
        elif path.suffix == ".csv":
            rows = list(csv.reader(io.StringIO(content.decode())))
            if len({len(row) for row in rows}) != 1 or not content.endswith(b"\n"):
                return "rows of different lengths"
        elif path.suffix == ".segkit":
            load(path)
        elif path.suffix == ".html" and not content.rstrip().endswith(b"</html>"):
            return "no end"
        elif path.suffix == ".zip" and zipfile.ZipFile(io.BytesIO(content)).testzip() is not None:
            return "a damaged member"
    except Exception as error:  # whatever a reader makes of half a file
        return f"{type(error).__name__}: {error}"
    return None


def digests(output: Path) -> dict[str, str]:
    """Compute the digest of each visible file of a folder, times left out."""
    return {path.relative_to(output).as_posix(): _digest(path) for path in visible(output)}


def _digest(path: Path) -> str:
    content = path.read_bytes()
    if "units" in path.parts or path.name in ("results.json", "manifest.json"):
        content = json.dumps(_without_times(json.loads(content)), sort_keys=True).encode()
    elif path.name == "results.csv":
        rows = list(csv.DictReader(io.StringIO(content.decode())))
        content = json.dumps([_without_times(row) for row in rows]).encode()
    elif path.name == "progress.json" or (path.name == "index.html" and (path.parent / "units").exists()):
        content = b""  # they tell of times
    return hashlib.sha256(content).hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(entry) for name, entry in value.items() if name not in _TIMES}
    return [_without_times(entry) for entry in value] if isinstance(value, list) else value


def learn(command: Command) -> None:
    """Run a command undisturbed: its duration, its number of files, and what it writes."""
    shutil.rmtree(command.output, ignore_errors=True)
    command.output.mkdir(parents=True)
    start = time.monotonic()
    status = run_command(command.arguments, command.run)
    command.seconds = time.monotonic() - start
    if status != 0:
        raise RuntimeError(f"segkit {command.name} ends with status {status} undisturbed")
    command.expected = digests(command.output)
    command.n_steps = max(2, sum(1 for path in command.output.rglob("*") if path.is_file()))


def episode(command: Command, chance: random.Random) -> dict[str, Any]:
    """Kill a command once or more, let it end, and report every fault."""
    shutil.rmtree(command.output, ignore_errors=True)
    command.output.mkdir(parents=True)
    kills: Counter[str] = Counter()
    faults: list[str] = []
    there: set[str] = set()
    for attempt in range(_MOST_ATTEMPTS):
        arguments = [*command.arguments, *(command.go_on if attempt else [])]
        if chance.random() < 0.5:
            how = "time"
            status = run_command(arguments, command.run, kill_after=chance.uniform(0, 1.05 * command.seconds))
        else:
            how = chance.choice(STEPS)
            status = run_command(arguments, command.run, kill_at=(chance.randint(1, command.n_steps), how))
        if status != -signal.SIGKILL:
            faults += [] if status == 0 else [f"exit status {status} in attempt {attempt}"]
            break
        kills[how] += 1
        now = {path.relative_to(command.output).as_posix() for path in visible(command.output)}
        faults += [f"lost: {name}" for name in sorted(there - now)]
        faults += [
            f"torn: {path.name}: {fault}" for path in visible(command.output) if (fault := fault_of(path))
        ]
        faults += command.lost(command.output)
        there = now
        if chance.random() < _STOPS:
            break
    status = run_command([*command.arguments, *command.go_on], command.run)
    faults += [] if status == 0 else [f"exit status {status} at the end"]
    found = digests(command.output)
    faults += [
        f"differs from an undisturbed run: {name}"
        for name in sorted(found.keys() | command.expected.keys())
        if found.get(name) != command.expected.get(name)
    ]
    parts = [path for path in command.output.rglob(".*") if ".part" in path.name]
    faults += [f"left: {path.name}" for path in parts]
    return {"kills": dict(kills), "faults": faults}


def kill_often(command: Command, n_kills: int) -> dict[str, Any]:
    """Kill a command so often, in as many episodes as that takes."""
    learn(command)
    chance = random.Random(command.name)
    kills: Counter[str] = Counter()
    faults: list[str] = []
    n_episodes = 0
    while kills.total() < n_kills:
        done = episode(command, chance)
        n_episodes += 1
        kills += Counter(done["kills"])
        faults += [f"episode {n_episodes}: {fault}" for fault in done["faults"]]
    return {"kills": kills.total(), "episodes": n_episodes, "by_step": dict(kills), "faults": faults}


def run(study: Study) -> None:
    import torch

    torch.set_num_threads(1)  # a fork has no threads of its parent
    n_kills = 2 if study.quick else 1000
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(Path(folder))[: 2 if study.quick else None]:
            wanted = max(1, round(n_kills * SHARES[command.name] / sum(SHARES.values())))
            study.row({"command": command.name}, partial(kill_often, command, wanted))


def kills(rows: list[Row]) -> str:
    """Tabulate kills and faults by command."""
    by_command = {row["command"]: row for row in flat(rows)}
    lines = ["| command | kills | runs until the end | torn, lost or different files |", "|---|---|---|---|"]
    lines += [
        f"| {TITLES.get(name, f'`segkit {name}`')} | {entry['kills']:,} | {entry['episodes']:,} | {len(entry['faults'])} |"
        for name, entry in by_command.items()
    ]
    steps = sum((Counter(entry["by_step"]) for entry in by_command.values()), Counter())
    return "\n".join(
        [
            *lines,
            "",
            f"{steps['time']:,} of the kills came after a random time. The others came at a random step of writing: before "
            f"the folder is made ({steps['folder']:,}), half way through the content ({steps['half']:,}), before it is on "
            f"the disk ({steps['sync']:,}), before the file gets its name ({steps['rename']:,}) and after "
            f"({steps['renamed']:,}).",
        ]
    )


TABLES = {"kills": kills}
