"""The commands and the Python of the pages, run on made-up folders; what they print is what the page shows."""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from segkit.config import Config
from segkit.segmentation.model_file import FORMAT_VERSION, READABLE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "api"),
]
# The pages show what a reader types. Here the same runs on fewer pixels and splits, without Gaussian kernels.
_OPTIONS = {"training.pixels": 1000, "selection.pixels": 500, "kernel.family": "linear"}
SMALLER = {
    "segkit train ": "segkit train " + "".join(f"--set {key}={value} " for key, value in _OPTIONS.items()),
    "segkit benchmark ": "segkit benchmark --seeds 1 ",
    "--methods segkit-no-networks,forest ": "--methods segkit-no-networks,forest --set forest.n_estimators=10 "
    + "".join(f"--set segkit-no-networks.{key}={value} " for key, value in _OPTIONS.items()),
    "--train-sizes 1,2,3": "--train-sizes 1",
    "--train-sizes 1,3,5": "--train-sizes 1",
    "random_state=0)": (
        "training_pixels=1000, selection_pixels=500, kernels=segkit.LinearMixture(), random_state=0)"
    ),
}
# Blocks that CI does not run, by page: their number. The page says why in a comment above each.
NOT_RUN = {
    "docs/banks.md": 2,
    "docs/formats.md": 1,
    "docs/install.md": 4,
    "docs/tasks/large.md": 1,
    "docs/tasks/stacks.md": 2,
    "docs/tasks/draw.md": 3,
    "docs/tasks/napari.md": 4,
    "docs/tasks/networks.md": 6,
    "docs/tasks/compare.md": 1,
    "docs/scale.md": 4,
}
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)```",
    re.DOTALL,
)
_INDENTED = re.compile(r"(?:^    segkit (?:train|predict|evaluate|benchmark).*\n)+", re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str
    mark: str
    title: str


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    found = [
        (match.start(), Block(*match.group("language", "text", "mark", "title")))
        for match in _BLOCK.finditer(text)
    ]
    if page.name == "README.md":
        found += [(match.start(), Block("sh", match[0], None, None)) for match in _INDENTED.finditer(text)]
    return [block for _, block in sorted(found)]


def is_run(block):
    return block.language in ("sh", "python", "yaml") and not (block.mark or "").startswith("not run: ")


def smaller(text):
    for shown, run in SMALLER.items():
        text = text.replace(shown, run)
    return text


def name_of(page):
    return page.relative_to(ROOT).as_posix()


WITH_BLOCKS = [page for page in PAGES if any(map(is_run, blocks_of(page)))]


@pytest.fixture
def here(folders, tmp_path, monkeypatch):
    """A folder with everything that a page expects, to work in."""
    place = tmp_path / "here"
    shutil.copytree(folders, place)
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_what_the_page_shows_runs(page, here, segkit, says):
    prepare(page, here)
    names = {"__name__": "page"}
    output = ""
    for block in blocks_of(page):
        if block.language == "text" and block.mark is None and output:
            assert says(output, block.text), f"printed:\n{output}\nshown:\n{block.text}"
        if not is_run(block):
            continue
        if block.language == "yaml":
            (here / block.title).write_text(block.text, encoding="utf-8")
            Config.load(here / block.title)
        elif block.language == "python":
            exec(compile(smaller(block.text), name_of(page), "exec"), names)
            output = ""
        else:
            output = "".join(run(segkit, line) for line in block.text.splitlines() if line.strip())


def prepare(page, here):
    """Give what a page takes from elsewhere."""
    if page.name == "compare.md":
        [groups] = [block.text for block in blocks_of(page) if "patient A" in block.text]
        (here / "groups.csv").write_text(groups, encoding="utf-8")
    if page.name == "count.md":
        shutil.copytree("cells", here, dirs_exist_ok=True)
    if page.name == "draw.md":
        draw()
    if page.name == "model-file.md":
        shutil.copy(
            ROOT / "tests" / "segmentation" / "golden" / f"version-{FORMAT_VERSION}.segkit", "model.segkit"
        )
        shutil.copy(ROOT / "tests" / "segmentation" / "golden" / "version-7.segkit", "old.segkit")
    if page.name == "README.md":
        shutil.copy("new_images/6.png", "new_images/1.png")
        shutil.copy("new_masks/6.png", "new_masks/1.png")


def draw():
    """Label and export, as on the page of `segkit annotate`."""
    from segkit.live import LabelClass, Project
    from segkit.live.hand_over import hand_over

    classes = [LabelClass(0, "background", "#56b4e9"), LabelClass(1, "nucleus", "#f0e442")]
    with Project("images", "images-annotations", classes=classes, masks="masks") as project:
        hand_over(project, Config.load(None, [f"{key}={value}" for key, value in _OPTIONS.items()]))


def run(segkit, line):
    code, out, err = segkit(smaller(line.strip()))
    assert code == 0, f"{line}\n{err}"
    return out


def test_blocks_that_are_not_run_are_known():
    counted = {
        name_of(page): sum((block.mark or "").startswith("not run: ") for block in blocks_of(page))
        for page in PAGES
    }
    assert {name: number for name, number in counted.items() if number} == NOT_RUN


def test_smaller_runs_replace_something():
    shown = "\n".join(page.read_text(encoding="utf-8") for page in WITH_BLOCKS)
    assert [text for text in SMALLER if text not in shown] == []


def test_every_page_of_a_task_is_run():
    assert set((DOCS / "tasks").glob("*.md")) <= set(WITH_BLOCKS)


def test_the_page_of_the_model_file_names_the_versions():
    text = (DOCS / "model-file.md").read_text(encoding="utf-8")
    told = " ".join(text.split())
    assert f"writes version {FORMAT_VERSION} and reads versions {READABLE[0]} to {READABLE[-1]}," in told
    assert re.findall(r"^\| (\d+) \|", text, re.MULTILINE) == [str(version) for version in READABLE]


def test_the_page_of_methods_names_methods_that_exist():
    from segkit.benchmark import DEFAULT_METHODS

    text = (DOCS / "tasks" / "compare.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    assert named
    assert set(named) <= set(DEFAULT_METHODS)
