import pytest
from starlette.websockets import WebSocketDisconnect

from tests.annotate.conftest import HOST, PORT, TOKEN

PATHS = ["/", "/static/main.js", "/thumbnail/a", "/tile/a/0/0/0", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_no_answer_without_the_token(client, path):
    for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x", "%00", "é"):
        answer = client.get(path, params={} if token is None else {"token": token})
        assert answer.status_code == 403
        told = "no valid token: open the address that segkit annotate printed, with its token\n"
        assert answer.text == told
        assert "set-cookie" not in answer.headers


def test_a_forged_cookie(client):
    for cookie in ("wrong", TOKEN + "x", '"', ""):
        answer = client.get("/", headers={"cookie": f"segkit-{PORT}={cookie}"})
        assert answer.status_code == 403


def test_the_token_gives_a_cookie_that_opens_the_rest(client):
    answer = client.get("/", params={"token": TOKEN})
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"segkit-{PORT}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert client.get("/static/main.js").status_code == 200


def test_wrong_host(client):
    for host in ("example.org", f"example.org:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT}.example.org", ""):
        answer = client.get("/", params={"token": TOKEN}, headers={"host": host})
        assert answer.status_code == 403
        assert answer.text.startswith("wrong host")
    assert client.get("/", params={"token": TOKEN}, headers={"host": f"localhost:{PORT}"}).status_code == 200


def test_requests_of_other_pages(client):
    answer = client.get("/", params={"token": TOKEN}, headers={"origin": "https://example.org"})
    assert answer.status_code == 403


def test_websockets_of_other_pages(connect):
    for origin in ("https://example.org", "http://127.0.0.1", "null", f"https://{HOST}", ""):
        with pytest.raises(WebSocketDisconnect) as refusal, connect(origin=origin):
            pass
        assert refusal.value.reason == "wrong origin: only the page of segkit annotate may connect"


def test_websocket_without_token(client):
    headers = {"origin": f"http://{HOST}", "host": HOST}
    with pytest.raises(WebSocketDisconnect) as refusal, client.websocket_connect("/ws", headers=headers):
        pass
    assert refusal.value.reason.startswith("no valid token")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_says_what_a_page_may_do(client, path):
    for params in ({}, {"token": TOKEN}):
        headers = client.get(path, params=params).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_cookies_of_other_programs_do_not_hide_ours(client):
    cookie = f'theirs={{"a": 1}}; segkit-{PORT}={TOKEN}; more=[x y]'
    assert client.get("/static/main.js", headers={"cookie": cookie}).status_code == 200
