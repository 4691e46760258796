"""The page in a real browser, with a session that learns next to nothing."""

import socket
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import uvicorn
from scipy import ndimage

from segkit.annotate import server
from segkit.annotate.guard import Guard
from segkit.images import UNLABELLED
from segkit.live import Failed, LabelClass, Prediction
from tests.annotate.conftest import TOKEN, two_halves
from tests.annotate.fakes import FakeProject, FakeSession
from tests.images.conftest import contrast

pytest.importorskip("selenium", reason="selenium drives the browser")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from benchmarks import page as pages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not pages.chromium_is_there(), reason="no chromium and chromedriver on this machine"),
]
HEIGHT, WIDTH = 60, 80


@pytest.fixture(scope="module")
def browser():
    driver = pages.start_browser(1200, 900)
    yield driver
    driver.quit()


class Running:
    """The server on a thread; `stop` and `start` break and mend the connection."""

    def __init__(self, base_url="/"):
        arrays = {"a": two_halves(HEIGHT, WIDTH), "b": two_halves(HEIGHT, WIDTH, seed=1)}
        self.project = FakeProject(arrays)
        self.session = FakeSession(self.project)
        self.page = server.make_page(self.project, self.session)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.base_url = base_url
        self.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}{self.base_url}?token={TOKEN}"

    def start(self, token=TOKEN):
        self.app = Guard(self.page, token=token, base_url=self.base_url)
        listener = server._listen(self.port)
        options = {"log_level": "error", "lifespan": "off", "ws_per_message_deflate": False}
        self.server = uvicorn.Server(uvicorn.Config(self.app, timeout_graceful_shutdown=1, **options))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self.thread.start()
        wait_for(lambda: self.server.started)

    def stop(self):
        self.server.should_exit = True
        self.thread.join(10)

    def labels(self, key="a"):
        return self.project.labels(key).labels

    def n_labelled(self, value=None, key="a"):
        labels = self.labels(key)
        return int((labels != UNLABELLED).sum() if value is None else (labels == value).sum())


@pytest.fixture
def running():
    running = Running()
    yield running
    running.stop()
    running.session.close()


class Page(pages.Page):
    """What a person does and sees."""

    def __init__(self, browser):
        self.browser = browser
        self.stage = self.id("stage")
        wait_for(lambda: self.run("return document.title.startsWith('a ')"))

    def id(self, name):
        return self.browser.find_element(By.ID, name)

    def css(self, selector):
        """Find an element, which may come in a moment."""
        return wait_for(lambda: self.browser.find_elements(By.CSS_SELECTOR, selector))[0]

    def keys(self, *keys):
        self.stage.send_keys(*keys)

    def chord(self, *keys):
        chain = ActionChains(self.browser)
        for key in keys[:-1]:
            chain.key_down(key)
        chain.send_keys(keys[-1])
        for key in keys[:-1]:
            chain.key_up(key)
        chain.perform()

    def at(self, chain, row, column):
        """Move the pointer to a pixel of the whole image, which is centred and takes 97 % of the stage."""
        size = self.stage.size
        scale = 0.97 * min(size["width"] / WIDTH, size["height"] / HEIGHT)
        x, y = (column + 0.5 - WIDTH / 2) * scale, (row + 0.5 - HEIGHT / 2) * scale
        return chain.move_to_element_with_offset(self.stage, round(x), round(y))

    def draw(self, *pixels):
        chain = ActionChains(self.browser, duration=20)
        self.at(chain, *pixels[0]).click_and_hold()
        for pixel in pixels[1:]:
            self.at(chain, *pixel)
        chain.release().perform()

    def click_at(self, *pixels):
        chain = ActionChains(self.browser, duration=20)
        for pixel in pixels:
            self.at(chain, *pixel).click()
        chain.perform()

    def colour(self, layer, row, column):
        """Colour of a canvas at a pixel of the whole image."""
        return self.run(
            "const c = document.getElementById(arguments[0]);"
            "const scale = 0.97 * Math.min(c.width / arguments[3], c.height / arguments[4]);"
            "const x = c.width / 2 + (arguments[2] + 0.5 - arguments[3] / 2) * scale;"
            "const y = c.height / 2 + (arguments[1] + 0.5 - arguments[4] / 2) * scale;"
            "return [...c.getContext('2d').getImageData(Math.round(x), Math.round(y), 1, 1).data]",
            f"layer-{layer}", row, column, WIDTH, HEIGHT,
        )  # fmt: skip

    def status(self):
        return self.id("status").text


def wait_for(check, seconds=15):
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.03)
    return found


def open_page(browser, address):
    browser.get(address)
    browser.get_log("browser")
    return Page(browser)


@pytest.fixture
def page(browser, running):
    page = open_page(browser, running.address)
    yield page
    # a server that a test has stopped, and colours that tests read from canvases
    expected = ("WebSocket", "ERR_CONNECTION", "willReadFrequently", "will-read-frequently")
    faults = [entry["message"] for entry in browser.get_log("browser")]
    assert not [fault for fault in faults if not any(word in fault for word in expected)]
    browser.execute_script(
        "window.addEventListener('beforeunload', (e) => e.stopImmediatePropagation(), true)"
    )
    browser.get("about:blank")


@pytest.mark.slow(short=True)
def test_draw_undo_redo_and_reload(page, running, browser):
    assert "token" not in browser.current_url
    page.draw((20, 10), (20, 20), (30, 20))
    wait_for(lambda: running.n_labelled(1))
    labels = running.labels().copy()
    assert set(np.unique(labels[26, 16:25])) == {1}
    assert (labels[:, 40:] == UNLABELLED).all()
    assert page.colour("labels", 20, 15)[3] > 0
    ActionChains(browser).move_to_element(page.id("undo")).perform()
    rows, columns = np.nonzero(labels == 1)
    wait_for(
        lambda: page.colour("marks", rows.min() - 0.5, columns.mean())[3] > 0
    )  # what it would undo is marked
    wait_for(lambda: "all saved" in page.status())
    page.chord(Keys.CONTROL, "z")
    wait_for(lambda: running.n_labelled() == 0)
    wait_for(lambda: page.colour("labels", 20, 15)[3] == 0)
    page.chord(Keys.CONTROL, Keys.SHIFT, "z")
    wait_for(lambda: page.colour("labels", 20, 15)[3] > 0)
    np.testing.assert_array_equal(running.labels(), labels)
    page.id("undo").click()
    wait_for(lambda: running.n_labelled() == 0)
    page.chord(Keys.CONTROL, "y")
    wait_for(lambda: running.n_labelled() > 0)
    wait_for(lambda: "all saved" in page.status())
    browser.refresh()
    page = Page(browser)
    wait_for(lambda: page.colour("labels", 20, 15)[3] > 0)
    assert page.id("undo").is_enabled()


def test_prediction_and_its_views(page, running):
    running.session.object_iou = 0.9
    page.draw((20, 60), (30, 60))
    page.keys("1")
    page.draw((20, 10), (30, 10))
    wait_for(lambda: "Up to date" in page.status())
    assert running.n_labelled(0) > 0 < running.n_labelled(1)
    right = wait_for(
        lambda: page.colour("prediction", 50, 70) if page.colour("prediction", 50, 70)[3] else None
    )
    assert right == [240, 228, 66, 255]
    assert page.colour("prediction", 50, 20)[3] < 255
    page.keys("v")  # outlines
    wait_for(lambda: page.colour("prediction", 50, 70)[3] == 0)
    assert page.colour("prediction", 50, 39) == [240, 228, 66, 255]
    page.keys("v")  # probability of the chosen class, background
    wait_for(lambda: page.colour("prediction", 50, 20) == [255, 234, 70, 255])
    assert page.id("legend").is_displayed()
    page.keys("vv")
    assert page.css("input[name=mode]:checked").get_attribute("value") == "off"
    assert page.colour("prediction", 50, 70)[3] == 0
    assert page.id("object-count").text == "1 (80 %: 1 to 9)"
    page.id("objects").click()
    assert page.id("object-rule").text == "Each region counts as one."
    assert "Pixel scores on your labels: object IoU about" in page.id("expected-text").text
    first = page.run("return segkit.strokes.at(-1)")
    assert 0 < first["first"] <= first["last"]
    assert page.run("return segkit.frames.length") > 0
    assert "90 %" in page.id("checked").text
    page.id("accept").click()
    wait_for(lambda: (running.labels() == (np.arange(WIDTH) >= 40)).all())
    wait_for(lambda: "complete" in page.id("images").text)


@pytest.mark.parametrize(("object_iou", "told"), [(None, "unknown"), (0.4, "40 %")])
def test_a_prediction_that_may_be_wrong_is_not_taken_at_one_click(page, running, object_iou, told):
    running.session.object_iou = object_iou
    page.draw((20, 60), (30, 60))
    page.keys("1")
    page.draw((20, 10), (30, 10))
    wait_for(lambda: told in page.id("checked").text)
    drawn = running.labels().copy()
    page.id("accept").click()
    assert f"The expected object IoU of this image is {told}." in page.id("doubt-text").text
    page.css("#doubt button.main").click()
    page.id("accept").click()
    page.id("doubt").send_keys(Keys.ESCAPE)
    time.sleep(0.2)
    np.testing.assert_array_equal(running.labels(), drawn)
    page.id("accept").click()
    page.id("accept-all").click()
    wait_for(lambda: (running.labels() == (np.arange(WIDTH) >= 40)).all())


def test_axes_are_asked_for_in_place_of_an_empty_stage(page, running):
    running.project.unnamed.add("b")
    page.keys(Keys.PAGE_DOWN)
    wait_for(lambda: page.id("ask-axes").is_displayed())
    assert page.id("ask-axes-title").text == "What are the axes of b?"
    assert page.css("#axes-choices button").text == "ZYX: 3 planes, 60 rows, 80 columns"
    page.run("document.body.focus()")
    page.chord(Keys.SHIFT, Keys.ARROW_RIGHT)
    page.chord(Keys.ENTER)  # a cross draws nothing on an image that is not there
    page.css("#axes-choices button:last-child").click()
    wait_for(lambda: "image b" in page.stage.get_attribute("aria-label"))
    assert not page.id("ask-axes").is_displayed()
    assert running.n_labelled() == running.n_labelled(key="b") == 0
    assert page.run("return document.getElementById('axes-named').textContent") == "CYX"
    page.run("document.getElementById('contrast').open = true")
    page.id("axes-change").click()
    assert page.id("axes-letters").get_attribute("value") == "CYX"
    page.id("axes-cancel").click()
    page.draw((20, 10), (20, 20))
    wait_for(lambda: running.n_labelled(key="b"))


def test_the_probability_of_a_class_that_is_not_the_most_probable_is_not_named(page, running):
    page.draw((20, 60), (30, 60))
    wait_for(lambda: running.n_labelled(1))
    for generation, share in ((1, 85), (2, 170)):
        planes = np.full((2, HEIGHT, WIDTH), 255 - share, np.uint8)
        planes[1] = share
        ids = np.ones((HEIGHT, WIDTH), np.uint8)
        running.session.emit(Prediction("a", generation, 1, (0, 0), ids, planes, ids, (0, 1)))
        told = "2 foreground (67 %)" if share == 170 else "2 foreground"
        chain = ActionChains(page.browser, duration=20)

        def words(chain=chain, row=generation):
            page.at(chain, 40 + row, 30).perform()
            return page.id("readout").text

        wait_for(lambda words=words, told=told: words().endswith(f"prediction: {told}"))


def test_polygon_fill_and_eraser(page, running):
    square = [(10, 50), (10, 70), (30, 70), (30, 50), (10, 50)]
    page.keys("p")
    page.click_at(*square)
    wait_for(lambda: running.n_labelled(1))
    assert 380 <= running.n_labelled(1) <= 440
    page.chord(Keys.CONTROL, "z")
    wait_for(lambda: running.n_labelled() == 0)
    page.keys("b")
    page.run("const s = document.getElementById('size'); s.value = 3; s.dispatchEvent(new Event('input'))")
    page.draw(*square)
    wait_for(lambda: 200 < running.n_labelled(1) < 300)
    page.keys("f")
    page.click_at((20, 60))  # the strokes around are closed
    wait_for(lambda: 480 < running.n_labelled(1) < 550)
    page.keys("e")
    page.draw((20, 55), (20, 65))
    wait_for(lambda: running.labels()[20, 60] == UNLABELLED)
    page.keys("1", "b")
    page.draw((20, 10), (20, 20))
    wait_for(lambda: running.n_labelled(0) > 0)
    wait_for(lambda: "Up to date" in page.status())
    page.keys("f")
    page.click_at((50, 30))  # open, and predicted as background, as all of the left half is
    wait_for(lambda: (running.labels()[:, :40] == 0).all())
    assert not (running.labels()[:, 40:] == 0).any()
    page.keys("2")
    page.click_at((50, 30))  # on labels: another class
    wait_for(lambda: (running.labels()[:, :40] == 1).all())


def test_a_second_tab_and_errors(page, running, browser):
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    second = open_page(browser, running.address)
    second.draw((20, 10), (20, 20))
    wait_for(lambda: running.n_labelled(1))
    browser.close()
    browser.switch_to.window(first)
    wait_for(lambda: page.colour("labels", 20, 15)[3] > 0)
    wait_for(lambda: "some labels" in page.id("images").text)
    n_looks = len(running.session.boxes)
    page.run("window.dispatchEvent(new Event('focus'))")  # the session works for the tab in use
    wait_for(lambda: len(running.session.boxes) > n_looks)
    running.session.emit(Failed("the disk is full: make room"))
    bar = wait_for(lambda: page.id("faults").text)
    assert "the disk is full: make room" in bar
    page.css("#faults button").click()
    assert page.id("faults").text == ""


def test_the_token_stays_in_the_tab(page, running, browser):
    assert browser.get_cookies() == []
    assert TOKEN not in browser.current_url
    browser.refresh()
    assert TOKEN not in browser.current_url
    again = Page(browser)
    again.draw((20, 10), (20, 20))
    wait_for(lambda: running.n_labelled(1))


def test_without_the_token_the_page_shows_nothing(browser, running):
    browser.switch_to.new_window("tab")  # of no token
    browser.get(running.address.partition("?")[0])
    wait_for(lambda: "no valid token" in browser.find_element(By.ID, "faults").text)
    assert browser.find_elements(By.CSS_SELECTOR, "#images li") == []
    browser.get_log("browser")
    browser.close()
    browser.switch_to.window(browser.window_handles[0])


def test_a_server_that_was_started_anew_is_told(page, running, browser):
    running.stop()
    running.start(token="another")
    wait_for(lambda: "Open the address that it printed" in page.id("faults").text, 20)
    browser.get_log("browser")  # of the refusal


def test_behind_a_proxy_with_a_path(browser):
    running = Running("/user/me/")
    try:
        page = open_page(browser, running.address)
        assert browser.current_url.partition("#")[0].endswith("/user/me/")
        page.draw((20, 10), (20, 20))
        wait_for(lambda: running.n_labelled(1))
        wait_for(lambda: page.run("return document.querySelector('#images img').naturalWidth") == WIDTH)
        browser.refresh()
        wait_for(lambda: Page(browser).colour("labels", 20, 15)[3] > 0)
        browser.get("about:blank")
    finally:
        running.stop()
        running.session.close()


def test_a_lost_connection_keeps_strokes(page, running):
    running.stop()
    wait_for(lambda: "Your strokes stay on this page" in page.id("faults").text)
    page.draw((20, 10), (20, 20))
    assert page.colour("labels", 20, 15)[3] > 0
    assert "saving" in page.status()
    page.id("add-class").click()
    wait_for(lambda: "Try again when it is back" in page.id("faults").text)
    assert running.n_labelled() == 0
    running.start()
    wait_for(lambda: running.n_labelled(1), 20)
    wait_for(lambda: "all saved" in page.status())
    assert page.colour("labels", 20, 15)[3] > 0
    assert page.id("faults").text == ""


def test_classes(page, running):
    page.id("add-class").click()
    wait_for(lambda: len(running.project.classes) == 3)
    assert running.project.classes[2].value == 2
    name = page.css("#name-2")
    name.send_keys(Keys.CONTROL + "a")
    name.send_keys("vessel", Keys.ENTER)
    wait_for(lambda: running.project.classes[2].name == "vessel")
    page.keys("3")
    page.draw((20, 10), (20, 20))
    wait_for(lambda: running.n_labelled(2))
    page.css("[aria-label='Remove class 3, vessel']").click()
    wait_for(lambda: "class vessel has labels in 1 image (a)" in page.id("faults").text)
    wait_for(lambda: page.run("return document.getElementById('name-2')?.value") == "vessel")


def test_everything_by_keyboard(page, running, browser):
    page.keys("?")
    assert page.id("shortcuts").is_displayed()
    page.id("shortcuts").send_keys(Keys.ESCAPE)
    wait_for(lambda: not page.id("shortcuts").is_displayed())
    page.chord(Keys.SHIFT, Keys.ARROW_RIGHT)
    page.keys(Keys.ENTER)
    page.chord(Keys.SHIFT, Keys.ARROW_RIGHT)
    page.keys(Keys.ENTER)
    wait_for(lambda: running.n_labelled(1))
    page.keys(Keys.PAGE_DOWN)
    wait_for(lambda: page.id("image-name").text == "b")
    page.run("document.querySelector('.skip').focus()")
    names = set()
    for _ in range(60):
        focused = browser.switch_to.active_element
        names.add(focused.get_attribute("id") or focused.get_attribute("name") or focused.accessible_name)
        ActionChains(browser).send_keys(Keys.TAB).perform()
    wanted = {
        "export", "help", "stage", "zoom-in", "tool", "size", "class", "name-0", "colour-1", "add-class", "mode",
        "opacity", "live",
    }  # fmt: skip
    assert wanted <= names


def test_every_control_has_a_name(page):
    controls = page.browser.find_elements(By.CSS_SELECTOR, "button, input, select, #stage")
    shown = [control for control in controls if control.is_displayed()]
    assert shown
    for control in shown:
        assert control.accessible_name, control.get_attribute("outerHTML")


def test_advice_and_export(page, running):
    page.draw((20, 60), (30, 60))
    page.keys("1")
    page.draw((20, 10), (30, 10))
    wait_for(lambda: "Up to date" in page.status())
    page.id("next").click()
    wait_for(lambda: len(page.browser.find_elements(By.CSS_SELECTOR, "#advice button")) == 2)
    ranks = page.browser.find_elements(By.CSS_SELECTOR, "#images .rank")
    assert [badge.text for badge in ranks] == ["2", "1"]
    page.css("#advice button").click()
    assert page.id("zoom").text != "100 %"
    page.id("export").click()
    wait_for(lambda: "segkit predict" in page.id("export-predict").text)
    assert page.id("export-masks").text.endswith("masks")
    assert page.id("export-count").text == page.id("export-predict").text + " --objects"
    assert page.id("export-rule").text == "Each counts."


def test_the_right_button_erases_and_the_wheel_with_ctrl_sizes_the_brush(page, running, browser):
    page.draw((20, 10), (20, 30))
    wait_for(lambda: running.n_labelled())
    before = running.n_labelled()
    at = "const e = (type, button, x, y) => stage.dispatchEvent(new PointerEvent(type, {button, clientX: x, clientY: y, "
    at += "pointerId: 1, pointerType: 'mouse', bubbles: true, cancelable: true}));"
    size = page.stage.size
    scale = 0.97 * min(size["width"] / WIDTH, size["height"] / HEIGHT)
    x, y = (
        page.stage.rect[side] + size[length] / 2 + (place - whole / 2) * scale
        for side, length, place, whole in (("x", "width", 20, WIDTH), ("y", "height", 20, HEIGHT))
    )
    page.run(
        "const stage = document.getElementById('stage'); stage.setPointerCapture = () => {};"
        f"{at} e('pointerdown', 2, arguments[0], arguments[1]); e('pointerup', 2, arguments[0], arguments[1]);",
        x, y,
    )  # fmt: skip
    wait_for(lambda: 0 < running.n_labelled() < before)
    assert page.css("input[name=tool]:checked").get_attribute("value") == "brush"
    brush = page.run("return Number(document.getElementById('size').value)")
    zoom = page.id("zoom").text
    chain = ActionChains(browser).key_down(Keys.CONTROL)
    chain.scroll_from_origin(ScrollOrigin.from_element(page.stage), 0, -100).key_up(Keys.CONTROL).perform()
    wait_for(lambda: page.run("return Number(document.getElementById('size').value)") > brush)
    assert page.id("zoom").text == zoom
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_element(page.stage), 0, -100).perform()
    wait_for(lambda: page.id("zoom").text != zoom)


def find_an_object(page):
    """Draw a stroke in each half: the left one is an object."""
    page.draw((20, 10), (40, 10))
    page.keys("1")
    page.draw((20, 60), (40, 60))
    wait_for(lambda: page.id("object-count").text)


def objects_of(running, key="a"):
    return running.session.objects.find(key)


def test_objects_are_corrected(page, running):
    """A line splits the only object, another joins its parts; one is deleted, one drawn, the last accepted."""
    find_an_object(page)
    assert "(80 %: 1 to 9)" in page.id("object-count").text
    assert not page.id("show-objects").is_selected()
    page.keys("s")
    assert page.id("show-objects").is_selected()
    assert page.id("object-tools").is_displayed()
    whole = objects_of(running)
    page.draw((0, 20), (30, 20), (59, 20))
    wait_for(lambda: page.id("object-count").text.startswith("2 "))
    assert "2 checked" in page.id("object-count").text
    page.keys("m")
    page.draw((30, 10), (30, 30))
    wait_for(lambda: page.id("object-count").text.startswith("1 "))
    np.testing.assert_array_equal(objects_of(running).labels > 0, whole.labels > 0)
    page.keys("d")
    page.click_at((30, 10))
    wait_for(lambda: running.n_labelled(0) > 2000)
    page.keys("o")
    page.draw((10, 50), (10, 70), (20, 70), (20, 50))
    wait_for(lambda: objects_of(running).checked)
    found = objects_of(running)
    assert found.checked == (found.labels[15, 60],)
    assert 150 < (found.labels == found.labels[15, 60]).sum() < 350
    page.id("undo").click()
    wait_for(lambda: not objects_of(running).checked)


def test_an_object_is_given_the_chosen_class(page, running):
    find_an_object(page)
    page.keys("1")
    page.keys("c")
    page.click_at((30, 10))
    wait_for(lambda: "Choose the class that the object is to have" in page.id("readout").text)
    assert not objects_of(running).checked
    page.keys("2")
    page.click_at((30, 10))
    wait_for(lambda: objects_of(running).checked)


def test_an_object_is_grown_by_a_drag_or_a_click(page, running):
    find_an_object(page)
    page.keys("g")
    page.click_at((30, 60))
    wait_for(lambda: "is labelled as background: erase that first" in page.id("faults").text)
    assert not objects_of(running).checked
    page.draw((30, 72), (30, 77))
    wait_for(lambda: objects_of(running).checked)
    found = objects_of(running)
    assert found.checked == (found.labels[30, 72],)
    assert not (found.labels == found.labels[30, 72])[:, :63].any()
    page.id("undo").click()
    wait_for(lambda: not objects_of(running).checked)
    page.click_at((30, 72))
    wait_for(lambda: objects_of(running).checked)


def test_a_correction_that_is_given_up_changes_nothing(page, running):
    find_an_object(page)
    before = running.n_labelled()
    page.keys("d")
    page.chord(Keys.SHIFT, Keys.ARROW_LEFT)
    page.keys(Keys.ENTER, Keys.ESCAPE)
    time.sleep(0.5)
    assert running.n_labelled() == before
    page.run("document.getElementById('show-table').click()")
    wait_for(lambda: page.run("return document.getElementById('table').open"))
    page.click_at((5, 10))  # above the table
    wait_for(lambda: running.n_labelled() > before)
    wait_for(lambda: not page.run("return document.getElementById('table').open"))  # nothing is predicted


def test_an_outlined_object_is_of_the_chosen_class(page, running):
    running.session.set_classes([*running.project.classes, LabelClass(2, "dead", "#112233")])
    page.browser.refresh()
    page = Page(page.browser)
    page.keys("3")
    page.keys("o")
    page.draw((10, 50), (10, 70), (20, 70), (20, 50))
    wait_for(lambda: running.n_labelled(2))
    page.keys("1")
    page.draw((30, 10), (30, 30), (50, 30), (50, 10))
    wait_for(lambda: running.n_labelled(1))


def test_all_objects_are_accepted_and_measured(page, running):
    find_an_object(page)
    page.id("objects").click()
    page.id("accept-objects").click()
    wait_for(lambda: running.n_labelled() == HEIGHT * WIDTH)
    assert len(objects_of(running).checked) == 1
    page.id("show-table").click()
    cells = wait_for(lambda: [cell.text for cell in page.browser.find_elements(By.CSS_SELECTOR, "#table td")])
    area = int((objects_of(running).labels > 0).sum())
    assert cells[:2] == ["1", str(area)]
    assert page.id("histogram").find_elements(By.CSS_SELECTOR, "rect")
    ActionChains(page.browser).move_to_element(page.css("#table tbody tr")).perform()
    wait_for(lambda: page.colour("marks", 30, 39.5)[3] > 0)
    file = page.run(
        "return fetch(document.getElementById('table-file').href).then((answer) => answer.text())"
    )
    assert file.startswith("image,label,class,area")
    assert f",{area}," in file


def test_how_objects_are_told_apart_is_set_and_taken_back(page, running):
    find_an_object(page)
    page.id("objects").click()
    assert page.id("depth-value").text == "0.10"
    assert not page.id("as-learnt").is_enabled()
    slide = "const s = document.getElementById('depth'); s.value = 0; s.dispatchEvent(new Event('change'))"
    page.run(slide)
    wait_for(lambda: running.session.object_settings["depth"] == 0.01)
    page.id("smallest").send_keys("30", Keys.ENTER)
    wait_for(lambda: running.session.object_settings == {"depth": 0.01, "smallest": 30, "fill_holes": None})
    page.id("as-learnt").click()
    wait_for(lambda: set(running.session.object_settings.values()) == {None})


def test_a_network_is_trained_and_cancelled(page, running):
    assert page.id("network-text").text.startswith("The quick model of your strokes predicts.")
    page.id("train-network").click()
    wait_for(lambda: page.id("network-progress").is_displayed())
    assert "Training 9 networks … 80 s left." in page.id("network-text").text
    page.id("cancel-network").click()
    wait_for(lambda: page.id("train-network").is_displayed())
    running.session.network = replace(
        running.session.network, state="current", shown="network", object_iou=0.834
    )
    running.session.emit(running.session.network)
    wait_for(lambda: page.id("network-text").text == (
        "The network predicts. Expected object IoU on other images: network 83 %."
    ))  # fmt: skip
    assert not page.id("train-network").is_enabled()


def test_the_hint_goes_for_good_and_the_brush_keeps_its_size(page, running, browser):
    page.run("localStorage.clear(); location.reload()")
    page = Page(browser)
    assert page.id("hint").is_displayed()
    page.id("hint-close").click()
    page.keys("]")
    size = page.id("size-value").text
    assert size != "12 px"
    page.run("location.reload()")
    page = Page(browser)
    assert not page.id("hint").is_displayed()
    assert page.id("size-value").text == size
    page.run("localStorage.clear(); location.reload()")
    page = Page(browser)
    assert page.id("hint").is_displayed()
    page.draw((20, 10), (20, 20))
    assert not page.id("hint").is_displayed()


def test_labels_are_checked_and_shown(page, running):
    find_an_object(page)
    page.id("check-labels").click()
    wait_for(lambda: page.id("doubts").text == "b: foreground, perhaps background (92 %)")
    before = page.id("zoom").text
    page.css("#doubts button").click()
    wait_for(lambda: page.id("image-name").text == "b")
    wait_for(lambda: page.id("zoom").text != before)
    wait_for(lambda: page.colour("marks", 10, 30)[3] > 0)  # the upper side of the box


def test_the_folder_is_segmented_and_its_results_sorted(page, running, browser, tmp_path):
    running.project.output = tmp_path / "out"
    page.click("run-all")
    wait_for(lambda: page.run("return document.getElementById('results').open"))
    cards = "return [...document.querySelectorAll('#results-cards .name')].map((one) => one.textContent)"
    assert page.run(cards) == ["a", "b"]
    files = (
        "[...document.querySelectorAll('#results-tools a')].map(async (link) => (await fetch(link)).status)"
    )
    assert page.run(f"return Promise.all({files})") == [200, 200, 200]
    wait_for(lambda: page.run("return document.querySelector('#results-cards img').naturalWidth") == 320)
    page.run("const order = document.getElementById('results-order'); order.value = 'accuracy';"
             "order.dispatchEvent(new Event('change'))")  # fmt: skip
    assert page.run(cards) == ["b", "a"]
    page.click("results-warned")
    assert page.run(cards) == ["b"]
    assert "much darker" in page.run("return document.querySelector('#results-cards .warned').textContent")
    page.click("results-table")
    wait_for(lambda: page.run("return document.querySelectorAll('#table-rows tbody tr').length") == 2)
    browser.find_element(By.CSS_SELECTOR, "#table button.main").click()
    browser.find_element(By.CSS_SELECTOR, "#results-cards button").click()
    wait_for(lambda: page.run("return document.getElementById('image-name').textContent") == "b")
    assert "an odd image" in page.run("return document.getElementById('run-notes').textContent")
    page.run("document.querySelector('#run details').open = true")
    browser.find_element(By.ID, "run-images").send_keys("/nowhere/else/")
    assert page.run("return document.getElementById('run-output').placeholder").endswith("results-else")
    page.click("run-all")
    wait_for(lambda: "no such folder" in page.run("return document.getElementById('faults').textContent"))


def test_touch_one_finger_draws_two_zoom(page, running, browser):
    def touch(kind, *points):
        places = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": places})

    box = page.stage.rect
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touch("Start", (x, y))
    touch("Move", (x + 40, y))
    touch("Move", (x + 80, y))
    touch("End")
    wait_for(lambda: running.n_labelled(1))
    n_labelled, zoom = running.n_labelled(), page.id("zoom").text
    touch("Start", (x, y), (x + 50, y))
    touch("Move", (x - 40, y), (x + 90, y))
    touch("Move", (x - 60, y), (x + 120, y))
    touch("End")
    wait_for(lambda: page.id("zoom").text != zoom)
    assert running.n_labelled() == n_labelled


SHAPES = """
const [height, width, line, points, row, column, wall] = arguments;
const done = arguments[arguments.length - 1];
import("/static/shapes.js").then((shapes) => {
  const mask = (spans) => {
    const out = new Array(height * width).fill(0);
    for (let i = 0; i < spans.length; i += 3) {
      for (let c = spans[i + 1]; c < spans[i + 2]; c++) out[spans[i] * width + c] = 1;
    }
    return out;
  };
  const spans = [];
  shapes.capsule(spans, ...line, height, width);
  const area = shapes.polygon(points, height, width);
  const flood = shapes.flood(row, column, height, width, (i) => !wall[i]);
  const packed = [...shapes.packMask(area, [0, 0, height, width])];
  done({ brush: mask(spans), polygon: mask(area), flood: mask(flood.spans), open: flood.open, packed });
});
"""


def inside(points, y, x):
    """Even-odd rule, one point at a time."""
    odd = False
    for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[0]], strict=True):
        odd ^= (y0 <= y) != (y1 <= y) and x0 + (y - y0) / (y1 - y0) * (x1 - x0) <= x
    return odd


def test_shapes_against_loops_over_all_pixels(page, rng):
    height, width = 23, 31
    rows, columns = np.indices((height, width)) + 0.5
    for _ in range(12):
        ax, ay, bx, by = rng.uniform(-5, 36, 4)
        diameter = rng.uniform(1, 14)
        points = rng.uniform(-4, 34, (6, 2))
        wall = rng.random((height, width)) < 0.35
        row, column = np.argwhere(~wall)[rng.integers((~wall).sum())]
        found = page.browser.execute_async_script(
            SHAPES, height, width, [ax, ay, bx, by, diameter], points.ravel().tolist(), int(row), int(column),
            wall.ravel().astype(int).tolist(),
        )  # fmt: skip
        along = ((columns - ax) * (bx - ax) + (rows - ay) * (by - ay)) / ((bx - ax) ** 2 + (by - ay) ** 2)
        along = np.clip(along, 0, 1)
        far = np.hypot(columns - ax - along * (bx - ax), rows - ay - along * (by - ay))
        np.testing.assert_array_equal(found["brush"], (far <= max(diameter / 2, 0.71)).ravel())
        expected = [inside(points.tolist(), y, x) for y, x in zip(rows.flat, columns.flat, strict=True)]
        np.testing.assert_array_equal(found["polygon"], expected)
        np.testing.assert_array_equal(found["packed"], np.packbits(expected))
        areas, _ = ndimage.label(~wall)
        area = areas == areas[row, column]
        np.testing.assert_array_equal(found["flood"], area.ravel())
        assert found["open"] == bool(area[[0, -1]].any() or area[:, [0, -1]].any())


@pytest.mark.parametrize("width", [420, 1200])
def test_nothing_sticks_out(page, browser, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert page.run("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_text(page, browser, scheme):
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        pairs = page.run(
            """
            const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
            return [["--ink", "--paper"], ["--muted", "--paper"], ["--ink", "--tint"], ["--muted", "--tint"],
                    ["--on-accent", "--accent"], ["--fault", "--fault-paper"]].map((pair) => pair.map(css));
            """
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    for text, paper in pairs:
        assert contrast(*(tuple(bytes.fromhex(colour[1:])) for colour in (text, paper))) >= 4.5, (text, paper)
