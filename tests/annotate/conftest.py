"""A made-up project, a session that learns next to nothing, and a browser's view of the server."""

import json
import struct
import warnings

import numpy as np
import pytest

from segkit.annotate import make_app
from segkit.annotate.messages import pack
from tests.annotate.fakes import FakeProject, FakeSession

with warnings.catch_warnings():  # newer ones of starlette would rather have httpx2
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

TOKEN, PORT = "secret-token", 8765
HOST = f"127.0.0.1:{PORT}"


def two_halves(height=60, width=80, seed=0):
    """Dark on the left, bright on the right."""
    rng = np.random.default_rng(seed)
    image = np.full((height, width, 3), 0.2) + 0.6 * (np.arange(width) >= width // 2)[:, None]
    return (np.rint(255 * np.clip(image + 0.02 * rng.standard_normal(image.shape), 0, 1)) / 255).astype(
        np.float32
    )


@pytest.fixture
def project(tmp_path):
    return FakeProject({"a": two_halves(), "sub/b #2": two_halves(seed=1)}, tmp_path / "out")


@pytest.fixture
def session(project):
    session = FakeSession(project)
    yield session
    session.close()


@pytest.fixture
def client(project, session):
    app = make_app(project, session, token=TOKEN)
    with TestClient(app, base_url=f"http://{HOST}") as client:
        yield client


class Tab:
    """One websocket, as the page uses it."""

    def __init__(self, socket):
        self.socket, self.seen = socket, []
        self.hello = self.until("hello")[0]

    def send(self, header, payload=b""):
        self.socket.send_bytes(pack(header, payload))

    def receive(self):
        frame = self.socket.receive_bytes()
        (length,) = struct.unpack_from("<I", frame)
        message = json.loads(frame[4 : 4 + length]), frame[4 + length :]
        self.seen.append(message)
        return message

    def until(self, op, **wanted):
        """Receive up to a message of this kind."""
        while True:
            header, payload = self.receive()
            if header["op"] == op and all(header.get(name) == value for name, value in wanted.items()):
                return header, payload

    def had(self, op, **wanted):
        """Find such a message among those received, or receive up to one."""
        for header, payload in self.seen:
            if header["op"] == op and all(header.get(name) == value for name, value in wanted.items()):
                return header, payload
        return self.until(op, **wanted)

    def open(self, image):
        self.send({"op": "open", "image": image})
        self.until("image", image=image)
        header, payload = self.until("labels", image=image)
        return labels_of(header, payload)

    def stroke(self, image, mask, value, seq, *, corner=(0, 0), stroke="s"):
        header = {
            "op": "stroke", "image": image, "seq": seq, "stroke": stroke, "corner": list(corner),
            "shape": list(mask.shape), "value": value,
        }  # fmt: skip
        self.send(header, np.packbits(mask).tobytes())


def labels_of(header, payload):
    return np.frombuffer(payload, dtype=np.uint8).reshape(header["shape"])


@pytest.fixture
def connect(client):
    """Open a websocket with the headers of a browser."""
    headers = {"origin": f"http://{HOST}", "host": HOST}

    def connect(page="p", **changed):
        return client.websocket_connect(f"/ws?token={TOKEN}&page={page}", headers={**headers, **changed})

    return connect


@pytest.fixture
def tab(connect):
    """A tab that shows the first image."""
    with connect() as socket:
        opened = Tab(socket)
        opened.open("a")
        yield opened
