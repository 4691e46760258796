"""The report in a real browser."""

import base64
import json
import shutil

import pytest

from segkit.report import write_report

pytestmark = pytest.mark.slow
webdriver = pytest.importorskip("selenium.webdriver")
if not (shutil.which("chromium") and shutil.which("chromedriver")):
    pytest.skip("chromium or chromedriver is not installed", allow_module_level=True)

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

from benchmarks.page import start_browser  # noqa: E402


@pytest.fixture(scope="module")
def browser():
    driver = start_browser(1200, 900, logs=("browser", "performance"))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, report):
    return show(browser, report)


@pytest.fixture
def opened_hostile(browser, hostile_report):
    return show(browser, hostile_report)


def show(browser, path):
    """Open a page and wait until its script has run: on a busy machine the driver is back before that."""
    browser.get(path.as_uri())
    WebDriverWait(browser, 20).until(
        lambda page: page.execute_script("return document.readyState") == "complete" and column(page, 0)
    )
    return browser


def requests(browser):
    entries = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        entry["params"]["request"]["url"]
        for entry in entries
        if entry["method"] == "Network.requestWillBeSent"
    ]


def column(browser, index):
    """Text of the visible cells of a column of the table of images."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#image-table tbody tr:not([hidden])')]"
        ".map((row) => row.cells[arguments[0]].textContent)",
        index,
    )


def scores(texts):
    """Numbers first, then how many have none; fails where a number follows a dash."""
    known = [float(text) for text in texts if text != "–"]
    assert texts[len(known) :] == ["–"] * (len(texts) - len(known))
    return known


@pytest.mark.parametrize("which", ["report", "hostile_report"])
def test_quiet_console_and_no_request(browser, which, request):
    path = request.getfixturevalue(which)
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    asked = requests(browser)
    assert path.as_uri() in asked
    # what is told before is of the page before, on a slow machine
    asked = asked[asked.index(path.as_uri()) :]
    assert all(url == path.as_uri() or url.startswith("data:") for url in asked), asked


def test_figures_and_pictures_are_seen(opened):
    opened.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    sizes = opened.execute_script(
        "return [...document.querySelectorAll('main figure > svg, main img')].map((figure) => {"
        " const box = figure.getBoundingClientRect();"
        " return [figure.tagName, box.width, box.height, figure.naturalWidth ?? 1]; })"
    )
    assert sum(tag == "svg" for tag, *_ in sizes) == 11
    assert sum(tag == "IMG" for tag, *_ in sizes) == 3 * (2 + 4 * 5)
    assert all(width > 50 and height > 50 and natural > 0 for _, width, height, natural in sizes)


def test_a_click_makes_a_picture_as_wide_as_the_page_and_small_again(opened):
    widths = lambda: opened.execute_script(  # noqa: E731
        "return [...document.querySelectorAll('#examples .pictures')].slice(0, 1).flatMap((row) =>"
        " [row.clientWidth, ...[...row.querySelectorAll('img')].map((picture) => picture.clientWidth)])"
    )
    page, *before = widths()
    assert max(before) == min(before) > page / 4
    button = opened.find_element(By.CSS_SELECTOR, "#examples .pictures figure:nth-child(2) button")
    opened.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", button)
    button.click()
    assert widths()[2] == page
    button.send_keys(Keys.ENTER)
    assert widths() == [page, *before]


def test_sorting_by_click_and_by_key(opened):
    button = opened.find_element(
        By.XPATH, "//table[@id='image-table']//th[starts-with(., 'ObjectIoU')]/button"
    )
    header = button.find_element(By.XPATH, "..")
    before = column(opened, 5)
    assert "–" in before
    opened.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", button)
    button.click()
    assert header.get_attribute("aria-sort") == "ascending"
    rising = scores(column(opened, 5))
    assert rising == sorted(rising)
    assert rising != scores([text for text in before if text != "–"])
    for key, direction in ((Keys.ENTER, "descending"), (Keys.SPACE, "ascending")):
        button.send_keys(key)
        assert header.get_attribute("aria-sort") == direction
        found = scores(column(opened, 5))
        assert found == sorted(found, reverse=direction == "descending")
    assert sorted(column(opened, 5)) == sorted(before)


def test_numbers_sort_as_numbers_and_names_as_names(opened):
    Select(opened.find_element(By.CSS_SELECTOR, "select[data-key='size']")).select_by_visible_text("all")
    for name, index in (("Annotated", 2), ("Image", 0)):
        button = opened.find_element(
            By.XPATH, f"//table[@id='image-table']//th[starts-with(., '{name}')]/button"
        )
        button.send_keys(Keys.ENTER)
        found = column(opened, index)
        assert found == sorted(found, key=float if index == 2 else str)
    assert len(opened.find_elements(By.CSS_SELECTOR, "#image-table [aria-sort]")) == 1


def test_filters(opened):
    assert set(column(opened, 2)) == {"5"}
    Select(opened.find_element(By.CSS_SELECTOR, "select[data-key='method']")).select_by_visible_text("U-Net")
    assert set(column(opened, 1)) == {"U-Net"}
    shown, total = len(column(opened, 1)), len(opened.find_elements(By.CSS_SELECTOR, "#image-table tbody tr"))
    told = opened.find_element(By.CSS_SELECTOR, ".filters output").text
    assert told == f"{shown} of {total} rows; Method: U-Net; Annotated images: 5"


def test_methods_of_one_title_are_told_apart(browser, evaluation, tmp_path):
    records = [
        record | {"method": method, "image": f"{method} {record['image']}"}
        for method in ("forest", "same")
        for record in evaluation["records"]
    ]
    methods = dict.fromkeys(("forest", "same"), evaluation["methods"]["forest"])
    write_report(evaluation | {"records": records, "methods": methods}, tmp_path / "index.html")
    browser.get((tmp_path / "index.html").as_uri())
    Select(browser.find_element(By.CSS_SELECTOR, "select[data-key='method']")).select_by_index(2)
    assert {image.split()[0] for image in column(browser, 0)} == {"same"}


def test_hostile_names_are_shown_and_do_nothing(opened_hostile, hostile_names):
    images = set(column(opened_hostile, 0))
    assert {f"{name}.png".replace("\udcff", "\\udcff") for name in hostile_names} <= images
    assert opened_hostile.find_element(By.TAG_NAME, "h1").text == hostile_names[0]
    labels = opened_hostile.execute_script(
        "return [...document.querySelectorAll('svg text')].map((text) => text.textContent)"
    )
    assert hostile_names[3] in labels
    assert opened_hostile.execute_script("return document.scripts.length") == 1
    Select(opened_hostile.find_element(By.CSS_SELECTOR, "select[data-key='method']")).select_by_index(2)
    assert set(column(opened_hostile, 1)) == {hostile_names[1]}


@pytest.mark.parametrize("which", ["report", "hostile_report"])
def test_phone_does_not_scroll_sideways(browser, which, request):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        browser.get(request.getfixturevalue(which).as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 380
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(("scheme", "dark"), [("dark", True), ("light", False)])
def test_scheme_follows_the_reader(opened, scheme, dark):
    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    colours = opened.execute_script(
        "return [getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('#curve figure > svg text')).fill]"
    )
    paper, ink = (sum(map(int, colour[4:-1].split(","))) / 3 for colour in colours)
    assert (paper < 60 and ink > 200) if dark else (paper > 200 and ink < 60)


def test_prints_with_everything_unfolded(opened):
    opened.execute_script(
        "addEventListener('afterprint', () => { window.folded ??= 'no'; });"
        "addEventListener('beforeprint', () => {"
        " window.folded = document.querySelectorAll('details:not([open])').length; });"
    )
    folded = opened.execute_script("return document.querySelectorAll('details:not([open])').length")
    printed = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 50_000
    assert opened.execute_script("return window.folded") == 0
    assert (
        opened.execute_script("return document.querySelectorAll('details:not([open])').length") == folded > 0
    )
