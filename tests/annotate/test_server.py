import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import httpx
import numpy as np
import psutil
import pytest
from PIL import Image
from starlette.websockets import WebSocketDisconnect

from segkit.annotate import server
from segkit.annotate.messages import LIMIT, pack
from segkit.errors import ConfigError, OutputError
from segkit.images import UNLABELLED
from segkit.live import Drawing, Failed
from tests.annotate.conftest import TOKEN, Tab, labels_of
from tests.annotate.test_messages import STROKE

OTHER = "sub/b #2"
SQUARE = np.ones((4, 4), dtype=bool)


@pytest.fixture
def get(client):
    return lambda path, **params: client.get(path, params={"token": TOKEN, **params})


# pages and pictures


def test_page_and_its_parts(get):
    page = get("/")
    assert page.headers["content-type"].startswith("text/html")
    kinds = {"main.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg"}
    for name, kind in kinds.items():
        answer = get(f"/static/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)


def test_the_page_asks_nothing_of_the_network():
    for path in (Path(server.__file__).parent / "static").iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert "http://" not in text


def test_no_other_file(get):
    for path in (
        "/static/../server.py", "/static/%2e%2e%2fserver.py", "/static/..%2f..%2ferrors.py", "/static//etc/passwd",
        "/static/%2fetc%2fpasswd", "/static/nothing.js", "/static/", "/thumbnail/../../etc/passwd",
        "/thumbnail/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/thumbnail//etc/passwd", "/thumbnail/b", "/thumbnail/a.png",
        "/tile/%2e%2e%2fa/0/0/0", "/tile//etc/passwd/0/0/0", "/tile/a/0/0", "/tile/a/-1/0/0", "/tile/a/x/0/0",
        "/tile/a/9/0/0", "/tile/a/0/7/0", "/tile/a/0/99999999999999999999/0", "/tile/nothing/0/0/0", "/server.py",
    ):  # fmt: skip
        answer = get(path)
        assert answer.status_code == 404, path
        assert answer.text.count("\n") <= 1
        assert "Traceback" not in answer.text


def test_wrong_contrast(get):
    for params, message in (
        ({"channel": "9"}, "channel 9 of an image with channels 0 to 2"),
        ({"channel": "-1"}, "channel: input should be"),
        ({"channel": "x"}, "channel: input should be"),
        ({"low": "nan"}, "low: input should be a finite number"),
        ({"high": "x"}, "high: input should be a valid number"),
        ({"low": "0.5", "high": "0.2"}, "contrast from 0.5 to 0.2"),
    ):
        answer = get("/tile/a/0/0/0", **params)
        assert answer.status_code == 404
        assert message in answer.text


@pytest.mark.parametrize("key", ["a", OTHER])
def test_tiles_and_thumbnails_are_the_image(get, project, key):
    for path in (f"/tile/{quote(key, safe='')}/0/0/0", f"/thumbnail/{quote(key, safe='')}"):
        with Image.open(io.BytesIO(get(path).content)) as image:
            np.testing.assert_array_equal(np.asarray(image), np.rint(255 * project.image(key)))


def test_an_image_that_vanished_says_so(get, project):
    project.broken.add("a")
    answer = get("/tile/a/0/0/0")
    assert answer.status_code == 404
    assert answer.text == "a.png: no such file: it was there before; put it back\n"


# websocket


def test_greeting_and_image(connect):
    with connect() as socket:
        tab = Tab(socket)
        assert [entry["key"] for entry in tab.hello["images"]] == ["a", OTHER]
        assert {entry["state"] for entry in tab.hello["images"]} == {"none"}
        assert [entry["value"] for entry in tab.hello["classes"]] == [0, 1]
        assert tab.hello["unlabelled"] == UNLABELLED
        assert (tab.open("a") == UNLABELLED).all()
        image = next(header for header, _ in tab.seen if header["op"] == "image")
        assert (image["height"], image["width"], image["channels"], image["depth"]) == (60, 80, 3, "8")
        assert image["range"] == [[0, 1]] * 3


def test_strokes_are_labels_on_disk_and_a_prediction(tab, project):
    tab.stroke("a", SQUARE, 0, 1, corner=(5, 5), stroke="s")
    tab.stroke("a", SQUARE, 1, 2, corner=(5, 70), stroke="t")
    header, payload = tab.until("prediction", stride=1)
    n = header["shape"][0] * header["shape"][1]
    assert header["classes"] == [0, 1]
    assert len(payload) == 4 * n
    ids = np.frombuffer(payload[:n], dtype=np.uint8).reshape(header["shape"])
    np.testing.assert_array_equal(ids, (np.arange(80) >= 40)[None].repeat(60, axis=0))
    labels = project.labels("a").labels
    assert (labels[5:9, 5:9] == 0).all()
    assert (labels[5:9, 70:74] == 1).all()
    assert (labels != UNLABELLED).sum() == 32
    count, bits = tab.had("objects")
    assert count["count"] == 1
    outline = np.unpackbits(np.frombuffer(bits, np.uint8), count=60 * 80).reshape(60, 80)
    assert set(np.flatnonzero(outline.any(axis=0))) == {40}
    tab.had("status", task="idle")
    for op in ("applied", "saved", "expected", "states"):
        tab.had(op)


def test_pieces_of_a_stroke_are_one_step_of_undo(tab, project):
    for seq, column in enumerate((5, 9, 13), start=1):
        tab.stroke("a", SQUARE, 1, seq, corner=(5, column), stroke="one")
    tab.send({"op": "undo", "image": "a", "seq": 4})
    tab.until("applied", seq=4)
    assert (project.labels("a").labels == UNLABELLED).all()
    tab.send({"op": "redo", "image": "a", "seq": 5})
    tab.until("applied", seq=5)
    assert (project.labels("a").labels == 1).sum() == 48


def test_a_second_tab_sees_the_strokes_and_what_came_before(connect):
    with connect("p") as socket, connect("q") as other:
        first, second = Tab(socket), Tab(other)
        first.open("a")
        second.open("a")
        first.stroke("a", SQUARE, 0, 1, corner=(5, 5), stroke="s")
        header, payload = second.until("labels")
        top, left = header["corner"]
        assert (labels_of(header, payload)[5 - top : 9 - top, 5 - left : 9 - left] == 0).all()
        first.stroke("a", SQUARE, 1, 2, corner=(5, 70), stroke="t")
        second.until("prediction", stride=1)
        first.had("status", task="idle")
        with connect("r") as late:
            third = Tab(late)
            assert third.hello["images"][0]["state"] == "some"
            third.open("a")
            third.until("prediction", stride=1)


def test_a_stroke_sent_twice_counts_once(connect, project):
    with connect("page") as socket:
        tab = Tab(socket)
        tab.open("a")
        tab.stroke("a", SQUARE, 1, 1, stroke="s")
        tab.until("applied", seq=1)
    version = project.labels("a").version
    with connect("page") as socket:
        tab = Tab(socket)
        assert tab.hello["applied"] == 1
        tab.stroke("a", SQUARE, 1, 1, stroke="s")
        assert tab.until("applied")[0]["version"] == version


def test_looks_right_fills_the_rest(tab, project):
    tab.stroke("a", SQUARE, 0, 1, corner=(5, 5), stroke="s")
    tab.stroke("a", SQUARE, 1, 2, corner=(5, 70), stroke="t")
    tab.send({"op": "accept", "image": "a", "seq": 3})
    tab.until("states", images={"a": "full"})
    assert (project.labels("a").labels == (np.arange(80) >= 40)).all()


def test_views_advice_settings_classes_export(tab, session, project):
    tab.send({"op": "view", "image": "a", "box": [0, 0, 10, 20]})
    tab.send({"op": "suggest", "image": "a"})
    assert tab.had("advice")[0]["ranking"] == [OTHER, "a"]
    assert session.boxes == [("a", (0, 0, 10, 20))]
    tab.send({"op": "settings", "live": False, "source": "strokes"})
    assert tab.until("settings")[0] == {"op": "settings", "live": False, "source": "strokes"}
    assert session.live is False
    classes = [
        {"value": value, "name": name, "colour": "#ff0000"} for value, name in ((0, "nothing"), (3, "a"))
    ]
    tab.send({"op": "classes", "classes": classes})
    assert tab.until("classes")[0]["classes"] == classes
    assert [entry.name for entry in project.classes] == ["nothing", "a"]
    tab.send({"op": "export"})
    made = tab.until("exported")[0]
    assert made["predict"] == f"segkit predict {project.output / 'model.segkit'} IMAGES -o predictions"


# what is wrong is told in one line, and the connection goes on


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"op": "open", "image": "../a"}, "image '../a': not among the images"),
        ({"op": "suggest", "image": "/etc/passwd"}, "not among the images"),
        ({"op": "undo", "image": "c", "seq": 1}, "not among the images"),
        ({"op": "view", "image": "a", "box": [0, 0, 99, 99]}, "view [0, 0, 99, 99] of an image of 60 x 80"),
        ({"op": "view", "image": "a", "box": [9, 0, 3, 9]}, "view [9, 0, 3, 9]"),
        ({"op": "nothing"}, "message of the page"),
        (
            {"op": "classes", "classes": [{"value": 0, "name": "a", "colour": "#000000"}] * 2},
            "share the value 0",
        ),
        (STROKE | {"value": 7}, "value 7 is of no class: give one of 0, 1"),
        (STROKE | {"corner": [58, 0]}, "stroke over rows 58 to 61"),
    ],
    ids=lambda value: value["op"] if isinstance(value, dict) else "",
)
def test_wrong_messages(tab, project, header, message):
    tab.send(header, bytes(2) if header["op"] == "stroke" else b"")
    told = tab.until("failed")[0]["message"]
    assert message in told
    assert "\n" not in told
    tab.stroke("a", SQUARE, 1, 9)
    tab.until("applied", seq=9)
    assert (project.labels("a").labels == 1).sum() == 16


def test_a_refused_stroke_is_taken_off_the_page(tab):
    tab.stroke("a", SQUARE, 7, 1)
    assert labels_of(*tab.until("labels")).shape == (60, 80)
    tab.had("applied", seq=1)


def test_classes_in_use_stay(tab):
    tab.stroke("a", SQUARE, 1, 1)
    others = [{"value": value, "name": f"c{value}", "colour": "#000000"} for value in (0, 3)]
    tab.send({"op": "classes", "classes": others})
    assert [entry["value"] for entry in tab.until("classes")[0]["classes"]] == [0, 1]
    assert "class foreground has labels in 1 image (a)" in tab.had("failed")[0]["message"]


def test_images_that_vanish_and_full_disks(tab, project, session):
    project.broken.add(OTHER)
    tab.send({"op": "open", "image": OTHER})
    assert "no such file" in tab.until("failed")[0]["message"]
    tab.open("a")
    session.emit(Failed("labels of a cannot be saved: no space left: make room, then draw on"))
    assert tab.until("failed")[0]["message"].endswith("make room, then draw on")


def test_axes_are_asked_for_and_then_the_images_are_listed_anew(tab, project):
    project.unnamed.add(OTHER)
    tab.send({"op": "open", "image": OTHER})
    asked = tab.until("ask_axes", image=OTHER)[0]
    assert (asked["shape"], list(asked["choices"])) == ([3, 60, 80], ["ZYX", "CYX"])
    tab.send({"op": "axes", "axes": "XYZ"})
    assert "X comes before Y" in tab.until("failed")[0]["message"]
    tab.send({"op": "axes", "axes": "ZYX"})
    listed = tab.until("images")[0]
    assert ([one["key"] for one in listed["images"]], listed["axes"]) == (["a", OTHER], "ZYX")
    tab.open(OTHER)


def test_faults_of_segkit_itself_do_not_end_the_connection(tab, session, monkeypatch):
    monkeypatch.setattr(session, "undo", lambda key: 1 / 0)
    tab.send({"op": "undo", "image": "a", "seq": 1})
    assert tab.until("failed")[0]["message"].startswith("unexpected error (ZeroDivisionError")
    tab.had("applied", seq=1)


@pytest.mark.parametrize(
    ("frame", "code"), [(b"", 1007), (bytes(LIMIT + 1), 1009), ("text", 1003)], ids=["empty", "huge", "text"]
)
def test_frames_of_no_page_close_with_a_reason(connect, frame, code):
    with connect() as socket:
        Tab(socket)
        (socket.send_text if isinstance(frame, str) else socket.send_bytes)(frame)
        with pytest.raises(WebSocketDisconnect) as end:
            for _ in iter(socket.receive_bytes, None):
                pass
        assert end.value.code == code
        assert end.value.reason


# the real server


def test_a_taken_port(session, project):
    with server._listen(0) as listener, pytest.raises(OutputError, match=r"--port \d+: .*: give another one"):
        server.serve(project, session, port=listener.getsockname()[1], open_browser=False)
    assert session.closed


@pytest.fixture
def run(monkeypatch):
    """Run a server that ends at once; gives the printed address, and what the browser was asked to open."""

    def run(**options):
        printed, opened = [], []

        def look(address):
            file = Path(url2pathname(urlsplit(address).path))
            modes = (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777)
            opened.append((file, file.read_text(), modes))

        monkeypatch.setattr("webbrowser.open", look)
        monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
        monkeypatch.setattr("signal.signal", lambda *_: None)
        server.run(Mock(), notify=printed.append, **options)
        return printed, opened

    return run


def test_the_browser_is_given_a_private_file(run):
    """All users of a machine can read what a browser is started with."""
    [address], [(file, text, modes)] = run()
    assert f'content="0; url={address}"' in text
    assert address.partition("token=")[2] not in str(file)
    assert os.name == "nt" or modes == (0o600, 0o700)
    assert not file.parent.exists()
    assert run(open_browser=False)[1] == []


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"host": "0.0.0.0"}, r"http://127\.0\.0\.1:\d+/"),
        ({"host": "localhost", "base_url": "user/me"}, r"http://localhost:\d+/user/me/"),
        ({"base_url": "/user/a%40b/"}, r"http://127\.0\.0\.1:\d+/user/a%40b/"),
        ({"base_url": ""}, r"http://127\.0\.0\.1:\d+/"),
    ],
)
def test_the_printed_address(run, options, start):
    [address], _ = run(**options)
    assert re.fullmatch(start + r"\?token=[\w-]{32}", address)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"base_url": "https://hub.example.org/me/"},
            "--base-url https://hub.example.org/me/: expected a path such",
        ),
        ({"base_url": "/me/?a"}, "--base-url /me/?a: expected a path such as"),
        ({"allow_hosts": ["a", "https://b"]}, "--allow-host https://b: expected the name of a host such as"),
        ({"allow_hosts": ["*"]}, "--allow-host *: expected the name of a host such as"),
        ({"host": "192.0.2.1"}, "--host 192.0.2.1: Cannot assign requested address"),
    ],
)
def test_what_is_no_address(run, options, told):
    with pytest.raises((ConfigError, OutputError), match=re.escape(told)):
        run(**options)


PROGRAM = """
import sys
import numpy as np
from segkit.annotate import serve
from tests.annotate.fakes import FakeProject, FakeSession
project = FakeProject({"a": np.eye(9, dtype=np.float32)})
session = FakeSession(project)
project.image = lambda key: 1 / 0
serve(project, session, open_browser=False, notify=lambda address: print(address, flush=True), debug="--debug" in sys.argv)
print("closed" if session.closed else "open")
"""


@contextlib.contextmanager
def started(*options):
    """A server, and the addresses of its page and of a picture, which cannot be drawn."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        yield process, address, address.replace("?", "thumbnail/a?")
    finally:
        process.kill()
        process.communicate()


of_unix = pytest.mark.skipif(os.name == "nt", reason="Ctrl-C of another process is Unix only")


@pytest.mark.slow(short=True)
@of_unix
@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM"])
def test_ctrl_c_saves_and_ends(sent):
    with started() as (process, address, picture):
        for _ in range(50):
            with contextlib.suppress(httpx.ConnectError):
                answer = httpx.get(address, timeout=5)
                break
        assert answer.status_code == 200
        assert "server" not in answer.headers
        assert httpx.get(picture.partition("?")[0]).status_code == 403
        process.send_signal(getattr(signal, sent))
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out.strip(), err) == (0, "closed", "")
    assert pack({}) == b"\x02\x00\x00\x00{}"


@pytest.mark.slow
@of_unix
@pytest.mark.parametrize("options", [(), ("--debug",)])
def test_an_error_within_a_request_is_one_line(options):
    with started(*options) as (process, _, picture):
        assert httpx.get(picture, timeout=20).status_code == 500
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=20)[1]
    told = "segkit annotate: unexpected error (ZeroDivisionError: division by zero): please report it; "
    if options:
        assert "Traceback (most recent call last)" in err
    else:
        assert (err.startswith(told), err.count("\n")) == (True, 1)


@pytest.mark.slow
@of_unix
def test_idle_connections_of_strangers_do_not_use_up_the_files():
    with started() as (process, address, _), contextlib.ExitStack() as idle:
        count = psutil.Process(process.pid).num_fds
        n_files = count()
        port = httpx.URL(address).port
        for _ in range(300):
            idle.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert httpx.get(address, timeout=20).status_code == 200
        assert count() < n_files + 60


def test_a_tab_whose_image_vanishes_hears_on(tab, project):
    project.broken.add("a")
    for _ in range(2):
        tab.send({"op": "open", "image": "nothing"})
        tab.until("failed", message="image 'nothing': not among the images of this folder: reload the page")
    assert any("no such file" in header.get("message", "") for header, _ in tab.seen)


def test_a_replaced_file_is_shown_anew(project, connect, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = project.images[0].path
    path.write_bytes(b"one")
    with connect() as socket:
        tab = Tab(socket)
        tab.open("a")
        path.write_bytes(b"another")
        project._pixels["a"] = np.zeros((30, 20, 3), dtype=np.float32)
        project._drawings["a"] = Drawing.blank((30, 20))
        tab.send({"op": "open", "image": "a"})
        header, _ = tab.until("image", image="a")
        assert (header["height"], header["width"]) == (30, 20)


def of_objects(tab, op, seq, payload=b"", **fields):
    tab.send({"op": op, "image": "a", "seq": seq, **fields}, payload)
    tab.until("applied", seq=seq)


@pytest.fixture
def halves(tab, session):
    """A tab whose left half is one object."""
    tab.stroke("a", np.ones((50, 5), dtype=bool), 1, seq=1, corner=(5, 5), stroke="left")
    tab.stroke("a", np.ones((50, 5), dtype=bool), 0, seq=2, corner=(5, 70), stroke="right")
    tab.until("objects", count=1, checked=0, depth=0.1, interval=[1, 9])
    return tab


def test_objects_are_corrected_in_the_order_of_strokes(halves, session):
    of_objects(halves, "split_objects", 3, points=[[-1, 20], [60, 20]])
    found = session.objects.find("a")
    assert (found.labels.max(), len(found.checked)) == (2, 2)
    of_objects(halves, "merge_objects", 4, points=[[30, 10], [30, 30]])
    assert session.objects.find("a").labels.max() == 1
    of_objects(halves, "delete_object", 5, points=[[30, 10]])
    assert (session.project.labels("a").labels[:, :40] == 0).all()
    of_objects(
        halves, "draw_object", 6, np.packbits(SQUARE).tobytes(), corner=[20, 50], shape=[4, 4], value=None
    )
    found = session.objects.find("a")
    drawn = np.zeros(found.labels.shape, dtype=bool)
    drawn[20 : 20 + SQUARE.shape[0], 50 : 50 + SQUARE.shape[1]] = SQUARE
    np.testing.assert_array_equal(np.isin(found.labels, found.checked), drawn)
    of_objects(halves, "undo", 7)
    assert not session.objects.find("a").checked
    of_objects(halves, "undo", 8)
    of_objects(halves, "accept_object", 9, points=[[30, 10]])
    assert len(session.objects.find("a").checked) == 1
    of_objects(halves, "split_objects", 9, points=[[-1, 30], [60, 30]])  # as if sent twice
    assert session.objects.find("a").labels.max() == 1
    of_objects(halves, "grow_object", 11, at=[30, 60], reach=5.0, value=1)
    found = session.objects.find("a")
    assert found.labels[30, 60] in found.checked
    assert 20 < (found.labels == found.labels[30, 60]).sum() < 250
    of_objects(halves, "accept_objects", 12)
    assert (session.project.labels("a").labels != UNLABELLED).all()


def test_a_correction_that_cannot_be_is_told_and_counts_as_done(halves, session):
    before = session.project.labels("a").labels.copy()
    of_objects(halves, "delete_object", 3, points=[[30, 79]])
    assert halves.had("failed")[0]["message"] == "a: no object at row 30, column 79: give a pixel of one"
    of_objects(halves, "draw_object", 4, b"\xff", corner=[20, 50], shape=[4, 4], value=1)
    assert "stroke of 4 x 4 pixels with 1 bytes" in halves.until("failed")[0]["message"]
    np.testing.assert_array_equal(session.project.labels("a").labels, before)


def test_how_objects_are_told_apart_is_told_to_all_tabs(halves, connect, session):
    settings = {"depth": 0.05, "smallest": 12, "fill_holes": False}
    halves.send({"op": "object_settings", **settings})
    halves.until("object_settings", **settings)
    assert session.object_settings == settings
    halves.send({"op": "object_settings", **settings | {"smallest": 13}})
    assert halves.until("object_settings")[0]["smallest"] == 12  # what is true
    assert halves.had("failed")[0]["message"] == "smallest of objects 13: give another number"
    with connect("other") as socket:
        assert Tab(socket).hello["object_settings"] == settings


def test_the_table_of_objects(halves, client):
    address = f"/objects/a?token={TOKEN}"
    table = client.get(address).json()
    assert table["area"] == [40 * 60]
    assert table["nearest_distance"] == [None]
    assert table["checked"] == [False]
    file = client.get(f"{address}&csv")
    assert file.headers["content-disposition"] == "attachment; filename*=UTF-8''a-objects.csv"
    header, row = file.text.splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["area"] == "2400"
    unknown = client.get(f"/objects/c?token={TOKEN}")
    assert (unknown.status_code, unknown.text) == (404, "no such image in this folder: reload the page\n")


def test_a_network_is_trained_for_all_tabs(tab, connect):
    assert tab.hello["network"]["state"] == "none"
    tab.send({"op": "train_network"})
    header, _ = tab.until("network", state="training")
    assert (header["shown"], header["done"], header["seconds_left"]) == ("kernel machine", 0.1, 80)
    tab.send({"op": "train_network"})
    told, _ = tab.until("failed")
    assert told["message"] == "a network is being trained already: wait until it is, or cancel it"
    with connect("other") as socket:
        other = Tab(socket)
        assert other.hello["network"]["text"] == "Training 9 networks"
        other.send({"op": "cancel_network"})
        other.until("network", state="none")
        tab.until("network", state="none")


def test_a_folder_is_segmented_and_shown(tab, get, project):
    none = get("/results/rows")
    assert (none.status_code, none.text) == (404, "there are no results yet: segment the folder\n")
    assert tab.hello["results"] == str(project.output / "results")
    ask = {"op": "segment", "images": None, "output": None}
    tab.send(ask | {"retrain": True})
    assert tab.until("run", state="training")[0]["seconds_left"] == 30
    done, _ = tab.until("run", state="done")
    assert (done["output"], done["notes"]) == (tab.hello["results"], ["an odd image"])
    told = get("/results/rows").json()
    assert told["known"] == ["a", OTHER]
    keys = ["key", "image", "page", "pages", "count", "checked", "warning", "expected_object_iou"]
    assert [[row[key] for key in keys] for row in told["rows"]] == [
        ["a", "a.png", 0, 1, 1, None, None, 0.9],
        [OTHER, f"{OTHER}.png", 0, 1, 1, None, "much darker than the training images", 0.7],
    ]
    assert get("/results/objects").json()["area"] == [12, 12]
    assert get("/results/objects.csv").text.splitlines()[1] == "a,1,12,no"
    asked = {"image": f"{OTHER}.png", "page": 0, "pages": 1}
    for small, size in ((False, (800, 600)), (True, (320, 240))):
        with Image.open(io.BytesIO(get("/results/picture", **asked, small=small).content)) as picture:
            assert picture.size == size
    with zipfile.ZipFile(io.BytesIO(get("/results/files").content)) as file:
        names = {"objects.csv", "images.csv", "summary.csv", "overlay/a.png", f"overlay/{OTHER}.png"}
        assert set(file.namelist()) == {f"results/{name}" for name in names}
    tab.send(ask | {"retrain": False})
    tab.until("run", state="done")
    assert [row["checked"] for row in get("/results/rows").json()["rows"]] == [1, 1]
    tab.send({"op": "cancel_run"})
    tab.until("run", state="none")


def test_results_show_nothing_else(tab, get, project):
    tab.send({"op": "segment", "images": None, "output": None, "retrain": True})
    tab.until("run", state="done")
    (project.output / "secret.png").write_bytes(b"secret")
    asked = {"page": 0, "pages": 1}
    for image in (
        "../../secret.png",
        "sub/../../../secret.png",
        str(project.output / "secret.png"),
        "nothing.png",
    ):
        answer = get("/results/picture", image=image, **asked)
        assert answer.status_code == 404, image
        assert answer.text.count("\n") == 1
        assert b"secret\n" not in answer.content
    for params in (
        {"image": "a.png", "page": 1, "pages": 1},
        {"image": "a.png", "page": -1, "pages": 1},
        {"image": "a.png"},
    ):
        assert get("/results/picture", **params).status_code == 404
    for kind in ("record", "overlay", "%2e%2e%2fsecret.png"):
        assert get(f"/results/{kind}").status_code == 404
    for image in ("a\0.png", "/", ".", ""):
        assert get("/results/picture", image=image, **asked).status_code == 404
    assert get("/results/picture", image="a.png", page=0, pages=2**31 - 1).status_code == 404
    (project.output / "results" / "images.csv").unlink()
    assert get("/results/images.csv").text == "images.csv is gone: segment the folder again\n"
    os.utime(project.output / "results" / "objects.csv", (0, 0))  # before ZIP files begin to count
    assert get("/results/files").status_code == 200
    (project.output / "results" / "summary.csv").write_text("image\n\xe4\n", encoding="latin-1")
    assert get("/results/rows").status_code == 404
    (project.output / "results" / "summary.csv").unlink()
    assert "cannot be read (No such file or directory): segment the folder again" in get("/results/rows").text


def test_a_table_without_objects_has_its_columns(tab, get, project):
    tab.send({"op": "segment", "images": None, "output": None, "retrain": True})
    tab.until("run", state="done")
    (project.output / "results" / "objects.csv").write_text("image,label,area\n")
    assert get("/results/objects").json() == {"image": [], "label": [], "area": []}


def test_another_folder_has_no_image_to_correct(tab, get, session):
    tab.send({"op": "segment", "images": None, "output": None, "retrain": True})
    tab.until("run", state="done")
    session.run = replace(session.run, is_own=False)
    assert get("/results/rows").json()["known"] == []


def test_labels_are_checked(tab):
    tab.send({"op": "check_labels"})
    doubts = tab.until("doubts")[0]["doubts"]
    assert doubts == [{"key": OTHER, "box": [10, 20, 30, 40], "value": 1, "predicted": 0, "share": 0.92}]


def test_a_folder_that_is_not_there(tab):
    tab.send({"op": "segment", "images": "/nowhere", "output": None, "retrain": True})
    told, _ = tab.until("failed")
    assert told["message"] == "/nowhere: no such folder: give one on the machine where segkit runs"


def test_a_page_that_comes_back_hears_what_is_saved(connect):
    with connect() as socket:
        tab = Tab(socket)
        tab.open("a")
        tab.stroke("a", SQUARE, 1, seq=1)
        version = tab.until("applied", seq=1)[0]["version"]
    with connect() as socket:  # nothing else tells it, if the connection broke before the answers came
        tab = Tab(socket)
        tab.open("a")
        assert tab.had("applied", image="a", seq=1)[0]["version"] >= version
        assert tab.had("saved", image="a")[0]["version"] >= version
