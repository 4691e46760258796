import importlib

import numpy as np
import pytest
from PIL import Image

from segkit import Segmenter
from segkit.annotate.start import Asked, read_recent
from segkit.cli import annotate as module
from segkit.cli.phantom import make_demo_set
from segkit.errors import InputError
from segkit.features import ModuleBank
from segkit.images import load_pairs, read_mask, write_image, write_mask


def test_without_the_extra_one_line_says_what_to_install(segkit, tmp_path, monkeypatch):
    known = importlib.util.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "uvicorn" else known(name))
    told = 'segkit: segkit annotate needs uvicorn, not installed here: pip install "segkit-bio[annotate]"\n'
    assert segkit("annotate", tmp_path) == (2, "", told)


def test_wrong_classes(segkit, tmp_path):
    for options, message in (
        (["--classes", "lesion"], "1 classes: give 2 to 20"),
        (["--classes", "a,,b"], "class name '': give 1 to 60 characters"),
        (["--classes", "a,a"], "classes share the name a: give each class its own"),
    ):
        code, _, err = segkit("annotate", tmp_path, *options)
        assert code == 2
        assert err.startswith(f"segkit: {message}")


def test_names_of_classes(segkit, served, folder):
    assert segkit("annotate", folder / "images", "-o", folder / "out", "--classes", "back, lesion")[0] == 0
    assert served == [(["back", "lesion"], [])]


def test_how_the_page_is_reached(segkit, folder, monkeypatch):
    pytest.importorskip("uvicorn", reason="the page needs a server")
    seen = []
    monkeypatch.setattr("segkit.annotate.server.run", lambda page, **options: seen.append(options))
    line = ["annotate", folder / "images", "-o", folder / "out", "--no-browser"]
    reached = [
        "--host",
        "0.0.0.0",
        "--port",
        "8765",
        "--base-url",
        "/me/",
        "--allow-host",
        "a",
        "--allow-host",
        "b",
    ]
    assert segkit(*line)[0] == segkit(*line, *reached)[0] == 0
    names = ("host", "port", "base_url", "allow_hosts", "open_browser")
    assert [tuple(one[name] for name in names) for one in seen] == [
        ("127.0.0.1", 0, "/", (), False),
        ("0.0.0.0", 8765, "/me/", ["a", "b"], False),
    ]


def test_a_path_that_is_none(segkit, folder):
    pytest.importorskip("uvicorn", reason="the page needs a server")
    line = ["annotate", folder / "images", "-o", folder / "out", "--base-url", "https://hub.example.org/"]
    told = "segkit: --base-url https://hub.example.org/: expected a path such as /user/me/proxy/8765/\n"
    assert segkit(*line) == (2, "segkit annotate: starting ...\n", told)


@pytest.fixture
def served(monkeypatch):
    """Projects that were served, as they were then."""
    pytest.importorskip("uvicorn", reason="the page needs a server")
    seen = []

    def serve(project, session, **_):
        seen.append(([one.name for one in project.classes], project.annotated()))
        session.close()

    monkeypatch.setattr("segkit.annotate.serve", serve)
    return seen


@pytest.fixture
def folder(tmp_path):
    images, masks = make_demo_set(2, shape=(64, 64))
    for name, image, mask in zip("ab", images, masks, strict=True):
        write_image(tmp_path / "images" / f"{name}.png", image)
        write_mask(tmp_path / "masks" / f"{name}.png", 255 * mask)
    return tmp_path


def test_a_new_project_takes_the_classes_of_the_model(segkit, served, folder):
    data = load_pairs(folder / "images", folder / "masks", labels={0: "tissue", 255: "lesion"})
    bank = ModuleBank(({"n_scales": 2, "n_angles": 3},))
    segmenter = Segmenter(bank, training_pixels=400, selection_pixels=200)
    segmenter.fit(data.images, data.masks, label_map=data.label_map).save(folder / "model.segkit")
    line = ["annotate", folder / "images", "-o", folder / "out", "--model", folder / "model.segkit"]
    assert segkit(*line)[0] == 0
    assert segkit(*line)[0] == 0  # opened again: its own classes
    assert served == [(["tissue", "lesion"], [])] * 2
    code, _, err = segkit(*line, "--classes", "background,lesion")
    assert code == 2
    assert err.endswith("name the classes as the model does, --classes tissue,lesion\n")


def test_without_images_the_page_lets_choose(segkit, folder, monkeypatch):
    pytest.importorskip("uvicorn", reason="the page needs a server")
    monkeypatch.setenv("SEGKIT_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)
    opened = []

    def serve_start(root, open_project, *, notify, **_):
        notify("http://there")
        for classes in ("", "tissue, lesion"):
            project, session = open_project(
                Asked(images=str(folder / "images"), output=f"o{len(opened)}", classes=classes)
            )
            session.close()
            project.close()
            opened.append([one.name for one in project.classes])
        with pytest.raises(InputError, match="1 classes"):
            open_project(Asked(images=str(folder / "images"), output="x", classes="lesion"))
        assert root == folder
        assert [one["output"] for one in read_recent()] == [str(folder / "o1"), str(folder / "o0")]

    monkeypatch.setattr("segkit.annotate.serve_start", serve_start)
    code, out, err = segkit("annotate", "--classes", "back,cell")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["segkit annotate: http://there (Ctrl-C ends)", "segkit annotate: ended"]
    assert opened == [["back", "cell"], ["tissue", "lesion"]]
    told = "segkit: --output and --masks belong to images: name their folder too\n"
    assert segkit("annotate", "-o", folder / "out")[1:] == ("segkit annotate: starting ...\n", told)


def test_how_masks_were_read_is_told(segkit, served, folder):
    [mask] = read_mask(folder / "masks" / "a.png")
    Image.fromarray(mask.astype(np.uint8)).save(folder / "masks" / "a.jpg", quality=95)
    (folder / "masks" / "a.png").unlink()
    line = ["annotate", folder / "images", "-o", folder / "out", "--masks", folder / "masks"]
    code, out, _ = segkit(*line)
    assert code == 0
    assert "JPEG" in out
    assert served == [(["background", "foreground"], ["a", "b"])]
