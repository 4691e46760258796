"""The start page: folders are shown, one is opened, and its page takes the place."""

import json

import pytest

from segkit.annotate.guard import Guard
from segkit.annotate.start import StartPage, list_folders, read_recent, remember
from segkit.errors import InputError
from segkit.images import write_image
from segkit.live import LiveSession, Project
from tests.annotate.conftest import HOST, TOKEN, TestClient, two_halves


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SEGKIT_CACHE", str(tmp_path / "cache"))
    for name in ("one/a.png", "one/b.TIF", "two/deep/c.png"):
        write_image(tmp_path / "root" / name.replace("TIF", "tif"), two_halves())
    (tmp_path / "root" / "one" / "b.tif").rename(tmp_path / "root" / "one" / "b.TIF")
    (tmp_path / "root" / "one" / "notes.txt").write_text("no image")
    (tmp_path / "root" / ".hidden").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "cache")
    return (tmp_path / "root").resolve()


@pytest.fixture
def page(root):
    def open_project(asked):
        if asked.classes == "wrong":
            raise InputError("1 classes: give 2 to 20")
        project = Project(asked.images, asked.output or root.parent / "out")
        return project, LiveSession(project)

    page = StartPage(root, open_project)
    yield page
    page.close()


@pytest.fixture
def client(page):
    with TestClient(Guard(page, token=TOKEN), base_url=f"http://{HOST}") as client:
        client.params = {"token": TOKEN}
        yield client


def opened(client, **asked):
    return client.post("/open", content=json.dumps(asked), headers={"origin": f"http://{HOST}"})


def test_folders_are_listed_with_their_images(client, root):
    listed = client.get("/folders").json()
    assert (listed["path"], listed["parent"], listed["n_images"], listed["recent"]) == (
        str(root),
        None,
        0,
        [],
    )
    assert [(one["name"], one["n_images"]) for one in listed["folders"]] == [("one", 2), ("two", 0)]
    below = client.get("/folders", params={"path": str(root / "two")}).json()
    assert below["parent"] == str(root)
    assert [one["name"] for one in below["folders"]] == ["deep"]


def test_nothing_above_or_beside_is_shown(client, root):
    for path in (root.parent, root / "..", root / "link", "/", root / "two" / ".." / ".."):
        answer = client.get("/folders", params={"path": str(path)})
        assert answer.status_code == 404
        assert f"not below {root}" in answer.text
    gone = client.get("/folders", params={"path": str(root / "gone")})
    assert (
        gone.text == f"{root / 'gone'}: cannot be read (No such file or directory): choose another folder\n"
    )


def test_many_folders(root, monkeypatch):
    monkeypatch.setattr("segkit.annotate.start._MOST_FOLDERS", 1)
    assert list_folders(root, root)["n_more"] == 1


def test_a_folder_is_opened_and_its_page_takes_the_place(client, root):
    assert "Open a folder of images" in client.get("/").text
    assert client.get("/static/start.js").status_code == 200
    answer = opened(client, images=str(root / "one"))
    assert (answer.status_code, answer.text) == (200, "")
    assert 'id="stage"' in client.get("/").text
    assert client.get("/thumbnail/a").headers["content-type"] == "image/png"
    headers = {"origin": f"http://{HOST}", "host": HOST}
    with client.websocket_connect(f"/ws?token={TOKEN}&page=one", headers=headers) as socket:
        assert b"hello" in socket.receive_bytes()
    for answer in (client.get("/folders"), opened(client, images=str(root / "one"))):
        assert (answer.status_code, answer.text) == (
            409,
            "a project was opened in another tab: reload the page\n",
        )


def test_what_is_wrong_is_told_and_the_start_page_stays(client, root):
    for asked, told in (
        ({"images": str(root / "gone")}, "no such file or folder: check its name"),
        ({"images": str(root / "one"), "classes": "wrong"}, "1 classes: give 2 to 20"),
        ({"images": ""}, "reload the page and try again"),
        ({"images": 3}, "reload the page and try again"),
        ({}, "reload the page and try again"),
        ({"images": str(root / "one"), "output": "a\0b"}, "null"),
        ({"images": "x" * 4000}, "name"),
    ):
        answer = opened(client, **asked)
        assert answer.status_code == 404
        assert told in answer.text
        assert answer.text.count("\n") == 1
    assert "Open a folder of images" in client.get("/").text


def test_other_pages_may_open_nothing(client, root):
    for headers in ({"origin": "http://elsewhere"}, {"origin": "null"}):
        answer = client.post("/open", content=json.dumps({"images": str(root / "one")}), headers=headers)
        assert answer.status_code == 403
    client.params = {}
    assert opened(client, images=str(root / "one")).status_code == 403


def test_projects_opened_lately_come_back(root):
    for name in ("one", "two", "one"):
        (root.parent / f"{name}-out").mkdir(exist_ok=True)
        remember(root / name, root.parent / f"{name}-out")
    assert [one["images"] for one in read_recent()] == [str(root / "one"), str(root / "two")]
    (root.parent / "one-out").rmdir()
    assert [one["images"] for one in read_recent()] == [str(root / "two")]
    recent = root.parent / "cache" / "recent.json"
    recent.write_text(json.dumps([{"images": "x" * 4000, "output": "a\0b"}, *json.loads(recent.read_text())]))
    assert [one["images"] for one in read_recent()] == [str(root / "two")]
    for damage in ("", "[3]", "{}", '[{"images": 1}]'):
        (root.parent / "cache" / "recent.json").write_text(damage)
        assert read_recent() == []
