"""The commands and the Python of the pages: all are checked; those of README run, and those of the others with -m slow."""

import ast
import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from segkit.cli.commands import app
from segkit.config import Config
from segkit.segmentation.model_file import FORMAT_VERSION

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
# The pages show what a reader types. Here the same runs on fewer pixels and splits, without Gaussian kernels.
_OPTIONS = {"training.pixels": 1000, "selection.pixels": 500, "kernel.family": "linear"}
SMALLER = {
    "segkit train ": "segkit train " + "".join(f"--set {key}={value} " for key, value in _OPTIONS.items()),
    "segkit benchmark ": "segkit benchmark --seeds 1 ",
    "--methods segkit-no-networks,forest ": "--methods segkit-no-networks,forest --set forest.n_estimators=10 "
    + "".join(f"--set segkit-no-networks.{key}={value} " for key, value in _OPTIONS.items()),
    "--train-sizes 1,2,3": "--train-sizes 1",
    "random_state=0)": (
        "training_pixels=1000, selection_pixels=500, kernels=segkit.LinearMixture(), random_state=0)"
    ),
}
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)```",
    re.DOTALL,
)
_INDENTED = re.compile(r"(?:^    segkit (?:train|predict|evaluate|benchmark).*\n)+", re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str
    mark: str | None = None
    title: str | None = None


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    found = [
        (match.start(), Block(*match.group("language", "text", "mark", "title")))
        for match in _BLOCK.finditer(text)
    ]
    if page == README:
        found += [(match.start(), Block("sh", match[0])) for match in _INDENTED.finditer(text)]
    return [block for _, block in sorted(found)]


def is_run(block):
    return block.language in ("sh", "python", "yaml") and not (block.mark or "").startswith("not run: ")


def lines_of(block):
    """List the command lines of a block, without comments."""
    joined = block.text.replace("\\\n", " ")
    return [line for line in (line.partition("    #")[0].strip() for line in joined.splitlines()) if line]


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
def test_what_the_page_shows_can_be_read(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(page):
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "yaml":
            Path(block.title).write_text(block.text, encoding="utf-8")
            Config.load(Path(block.title))
        elif block.language == "sh":
            for line in lines_of(block):
                check_options(line)


def check_options(line):
    """Check that arguments and options of a line exist, and those of a training; nothing is run."""
    program, *arguments = shlex.split(line.replace(" --device cuda", ""))  # refused without a graphics card
    if program != "segkit":
        return
    group, name = typer.main.get_command(app), arguments[0]
    with group.make_context(program, arguments) as context:
        given = group.commands[name].make_context(name, context.args).params
    if name == "train" and not re.search(r"images-annotations|\.segkit$|^auto$", str(given["config"])):
        Config.load(given["config"], given["set_"] or [])


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page == README else pytest.mark.slow) for page in WITH_BLOCKS],
    ids=name_of,
)
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
        elif block.language == "python":
            exec(compile(smaller(block.text), name_of(page), "exec"), names)
            output = ""
        else:
            output = "".join(run(segkit, line) for line in lines_of(block))


def prepare(page, here):
    """Give what a page takes from elsewhere."""
    if page.name == "compare.md":
        [groups] = [block.text for block in blocks_of(page) if "patient A" in block.text]
        (here / "groups.csv").write_text(groups, encoding="utf-8")
    if page.name == "count.md":
        shutil.copytree("cells", here, dirs_exist_ok=True)
    if page.name == "draw.md":
        draw()
    if page.name == "trust.md":
        golden = ROOT / "tests" / "segmentation" / "golden" / f"version-{FORMAT_VERSION}.segkit"
        shutil.copy(golden, "model.segkit")
    if page == README:
        shutil.copy("new_images/6.png", "new_images/1.png")


def draw():
    """Label and export, as on the page of `segkit annotate`."""
    from segkit.live import LabelClass, Project
    from segkit.live.export import hand_over

    classes = [LabelClass(0, "background", "#56b4e9"), LabelClass(1, "nucleus", "#f0e442")]
    with Project("images", "images-annotations", classes=classes, masks="masks") as project:
        hand_over(project, Config.load(None, [f"{key}={value}" for key, value in _OPTIONS.items()]))


def run(segkit, line):
    code, out, err = segkit(smaller(line))
    assert code == 0, f"{line}\n{err}"
    return out


def test_smaller_runs_replace_something():
    shown = "\n".join(page.read_text(encoding="utf-8") for page in WITH_BLOCKS)
    assert [text for text in SMALLER if text not in shown] == []


def test_the_page_of_methods_names_methods_that_exist():
    from segkit.benchmark import DEFAULT_METHODS

    text = (DOCS / "tasks" / "compare.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    assert named
    assert set(named) <= set(DEFAULT_METHODS)
