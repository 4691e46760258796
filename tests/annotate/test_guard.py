import pytest
from starlette.websockets import WebSocketDisconnect

from segkit.annotate.guard import Guard
from segkit.annotate.server import make_page
from tests.annotate.conftest import HOST, PORT, TOKEN, TestClient

OF_THE_PAGE = ["/", "/static/main.js"]
PATHS = ["/thumbnail/a", "/tile/a/0/0/0", "/results/files", "/nothing", "/static", "/x/static/main.js"]


@pytest.mark.parametrize("path", PATHS)
def test_no_answer_without_the_token(client, path):
    for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x", "%00", "é"):
        answer = client.get(path, params={} if token is None else {"token": token})
        assert answer.status_code == 403
        told = "no valid token: open the address that segkit annotate printed, with its token\n"
        assert answer.text == told


@pytest.mark.parametrize("path", OF_THE_PAGE)
def test_the_files_of_the_page_need_no_token_and_hold_none(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert TOKEN not in answer.text


def test_a_wrong_token_is_told_at_once(client):
    for token in ("", "wrong", TOKEN + "x"):
        assert client.get("/", params={"token": token}).status_code == 403


def test_no_cookie_is_given_or_taken(client):
    """A browser would send it to every server of this machine, whoever runs it."""
    for path in ("/", "/thumbnail/a"):
        answer = client.get(path, params={"token": TOKEN})
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
    assert client.get("/thumbnail/a", headers={"cookie": f"segkit-{PORT}={TOKEN}"}).status_code == 403


def test_wrong_host(client):
    for host in (
        "example.org",
        f"example.org:{PORT}",
        f"127.0.0.1:{PORT}.example.org",
        "127.0.0.1.example.org",
        "",
    ):
        for path in ("/", "/thumbnail/a"):
            answer = client.get(path, params={"token": TOKEN}, headers={"host": host})
            assert answer.status_code == 403
            assert answer.text.startswith("wrong host")
    assert client.get("/", params={"token": TOKEN}, headers={"host": f"localhost:{PORT}"}).status_code == 200


def test_a_tunnel_has_another_port(connect):
    for host in ("127.0.0.1:9999", "localhost:9999", "LOCALHOST", "[::1]:9999"):
        with connect(host=host, origin=f"http://{host}") as socket:
            assert b"hello" in socket.receive_bytes()


@pytest.fixture
def proxied(project, session):
    page = make_page(project, session)
    options = {"token": TOKEN, "allow_hosts": ["hub.example.org"], "base_url": "/user/me/"}
    with TestClient(Guard(page, **options), base_url="https://hub.example.org") as client:
        yield client


def test_a_proxy_with_a_path(proxied):
    for path in ("/user/me/thumbnail/a", "/thumbnail/a"):  # left as it is, or without the prefix
        assert proxied.get(path, params={"token": TOKEN}).status_code == 200
        assert proxied.get(path).status_code == 403
    assert 'id="stage"' in proxied.get("/user/me/").text
    assert proxied.get("/user/me/static/main.js").status_code == 200
    assert proxied.get("/other/", params={"token": TOKEN}).status_code == 404
    policy = proxied.get("/user/me/").headers["content-security-policy"]
    assert "wss://hub.example.org;" in policy


@pytest.mark.parametrize(
    ("host", "origin", "is_taken"),
    [
        ("hub.example.org", "https://hub.example.org", True),
        (HOST, "https://hub.example.org", True),  # a proxy that replaces the host
        ("hub.example.org", "https://elsewhere.example.org", False),
        (HOST, "http://127.0.0.1:1", False),
        ("elsewhere.example.org", "https://hub.example.org", False),
    ],
)
def test_the_host_of_a_proxy_and_its_page(proxied, host, origin, is_taken):
    headers = {"host": host, "origin": origin}
    answer = proxied.get("/user/me/thumbnail/a", params={"token": TOKEN}, headers=headers)
    assert answer.status_code == (200 if is_taken else 403)
    address = f"/user/me/ws?token={TOKEN}&page=p"
    if is_taken:
        with proxied.websocket_connect(address, headers=headers) as socket:
            assert b"hello" in socket.receive_bytes()
    else:
        with pytest.raises(WebSocketDisconnect), proxied.websocket_connect(address, headers=headers):
            pass


def test_requests_of_other_pages(client):
    answer = client.get("/", params={"token": TOKEN}, headers={"origin": "https://example.org"})
    assert answer.status_code == 403


def test_websockets_of_other_pages(connect):
    for origin in (
        "https://example.org",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "null",
        f"file://{HOST}",
        "",
    ):
        with pytest.raises(WebSocketDisconnect) as refusal, connect(origin=origin):
            pass
        assert refusal.value.reason == "wrong origin: only the page of segkit annotate may connect"


def test_websocket_without_token(client):
    headers = {"origin": f"http://{HOST}", "host": HOST}
    with pytest.raises(WebSocketDisconnect) as refusal, client.websocket_connect("/ws", headers=headers):
        pass
    assert refusal.value.reason.startswith("no valid token")


@pytest.mark.parametrize("path", OF_THE_PAGE + PATHS)
def test_every_answer_says_what_a_page_may_do(client, path):
    for params in ({}, {"token": TOKEN}):
        headers = client.get(path, params=params).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
