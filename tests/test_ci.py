"""The workflow, `.ci/run` and the package's metadata tell the same."""

import re
import runpy
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
STEPS = {"lint", "test", "slow", "minimum", "napari", "package", "docs", "benchmarks", "audit"}


def commands():
    return [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]


def test_the_workflow_and_the_run_on_one_machine_have_the_same_steps():
    in_workflow = {name for command in commands() for name in re.findall(r"bash \.ci/(\w+)", command)}
    in_run = set(
        re.findall(r"^ *step (\w+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert in_workflow == in_run == STEPS
    assert all((ROOT / ".ci" / name).is_file() for name in STEPS)


def test_every_python_of_the_classifiers_is_tested():
    pythons = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: 3."
    classified = [text.removeprefix(prefix) for text in PROJECT["classifiers"] if text.startswith(prefix)]
    assert {f"3.{minor}" for minor in classified} <= set(pythons)
    assert PROJECT["requires-python"] == f">={pythons[0]}"


def test_actions_are_pinned_by_version_and_know_no_secrets():
    used = [step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", action) for action in used)
    assert "secrets" not in str(WORKFLOW)


def test_the_oldest_versions_are_those_of_the_metadata(capsys):
    runpy.run_path(str(ROOT / ".ci" / "minimum_versions.py"), run_name="__main__")
    pins = dict(line.split("==") for line in capsys.readouterr().out.splitlines())
    extras = PROJECT["optional-dependencies"]
    used = ("tuned", "baselines", "objects", "annotate", "large", "foundation", "scale")
    optional = [one for extra in used for one in extras[extra] if one != "segkit-bio[tuned]"]
    bounds = {}
    for requirement in PROJECT["dependencies"] + optional:
        name, _, rest = requirement.partition(">=")
        bounds.setdefault(name, []).append(re.match(r"[\w.]+", rest).group())
    assert pins.keys() == bounds.keys()
    assert pins["tifffile"] == "2025.5.21"  # what an extra asks for, later than what segkit itself does
    assert all(pins[name] in own for name, own in bounds.items())
    assert all(pins[name] == own[0] for name, own in bounds.items() if len(own) == 1)


def test_scripts_stop_at_the_first_failure():
    scripts = [path for path in (ROOT / ".ci").iterdir() if path.is_file() and path.suffix != ".py"]
    texts = {path.name: path.read_text(encoding="utf-8") for path in scripts}
    assert [name for name, text in texts.items() if not text.startswith("#!/usr/bin/env bash\n")] == []
    assert [name for name, text in texts.items() if "\nset -euo pipefail\n" not in text] == []
