"""The page in Chromium: upload, match, click, download, messages, a phone."""

import os
import shutil
import time
import zipfile

import numpy as np
import pytest

from gocor.app.uploads import MAX_BYTES
from gocor.data.io import write_image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
QUICK = "/?max_size=128&updates=1&align=0&iters_global=2"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def visit(browser, served):
    """Open the page; afterwards, check that nothing but the server was asked and that no script failed."""
    contexts, asked, failed = [], [], []

    def open_page(**options):
        context = browser.new_context(**options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.goto(served[0] + QUICK)
        page.wait_for_selector(".gc-card")
        contexts.append(context)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert asked
    assert [url for url in asked if not url.startswith((served[0], "data:", "blob:"))] == []
    assert failed == []


def after(page, action, selector=".gc-line"):
    """Do something, and wait until the text of an element is another."""
    old = page.locator(selector).inner_text()
    action()
    page.wait_for_function("([s, t]) => document.querySelector(s)?.innerText !== t", arg=[selector, old])
    return page.locator(selector).inner_text()


def heat_maps(page):
    return page.eval_on_selector_all(".gc-card img", "images => images.map(image => image.src)")


def picture(folder, name, height, width, seed):
    path = folder / name
    write_image(path, np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))
    return str(path)


def test_upload_match_click_and_download(visit, served, tmp_path):
    page = visit(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    for number, side in enumerate(("reference", "query")):
        page.locator(f"#{side}").get_by_label("Remove Image").click()
        file = picture(tmp_path, f"{side}.png", 60, 80, number)
        page.locator(f"#{side} input[type=file]").first.set_input_files(file)
        page.wait_for_selector(f"#{side} img")
    page.get_by_role("button", name="Match", exact=True).click()
    page.wait_for_selector(".gc-why[data-width='80']")
    assert len(heat_maps(page)) == 3  # plain correlation, and two iterations

    before, box = heat_maps(page), page.locator(".gc-pick").bounding_box()
    where = {"x": 0.905 * box["width"], "y": 0.11 * box["height"]}  # a little right of and below the pixel's corner
    text = after(page, lambda: page.locator(".gc-pick").click(position=where))
    assert "Reference pixel (72, 6) →" in text
    assert all(old != new for old, new in zip(before, heat_maps(page), strict=True))

    def press():
        page.locator(".gc-pick").focus()
        page.keyboard.press("ArrowLeft")

    assert "Reference pixel (64, 6) →" in after(page, press)
    assert page.evaluate("document.activeElement.classList.contains('gc-pick')")
    page.get_by_role("tab", name="Overlay").click()
    page.locator("#view-overlay input[type=range]").fill("80")
    assert page.locator("#view-overlay .gc-compare").evaluate("e => e.style.getPropertyValue('--share')") == "0.8"

    page.wait_for_selector("text=/Download all files \\(/")
    with page.expect_download() as waiting:
        page.locator("#download").click()
    waiting.value.save_as(tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert {"flow.flo", "matches.csv", "done.json"} <= set(archive.namelist())
    archives = list(served[1].glob("visit-*/*/*.zip"))
    assert archives
    page.close()
    page.context.close()
    for _ in range(100):
        if not any(map(os.path.exists, archives)):
            break
        time.sleep(0.1)
    assert not any(map(os.path.exists, archives))  # removed when the visit ended


COPY = """async () => {
  const canvas = new OffscreenCanvas(90, 60), paint = canvas.getContext("2d");
  paint.fillStyle = "red";
  paint.fillRect(20, 10, 50, 40);
  const png = await canvas.convertToBlob({ type: "image/png" });
  await navigator.clipboard.write([new ClipboardItem({ "image/png": png })]);
}"""


def test_a_copied_image_is_pasted(visit):
    page = visit(viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"])
    page.evaluate(COPY)
    sizes = "[...document.querySelectorAll('#reference img, #query img')].map((image) => image.naturalWidth).join()"
    assert page.evaluate(sizes) == "480,480"
    page.locator("#reference").hover()
    page.keyboard.press("Control+V")  # replaces the image under the pointer
    page.wait_for_function(f"{sizes} === '90,480'")
    page.locator("#query").get_by_label("Remove Image").click()
    page.locator("#match").hover()
    page.keyboard.press("Control+V")  # goes to the empty input
    page.wait_for_function(f"{sizes} === '90,90'")
    page.get_by_role("button", name="Match", exact=True).click()
    page.wait_for_selector(".gc-why[data-width='90']")


def test_broken_huge_and_missing_images_are_messages(visit, tmp_path):
    page = visit(viewport={"width": 1280, "height": 900})
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
    page.locator("#query").get_by_label("Remove Image").click()
    page.get_by_role("button", name="Match", exact=True).click()
    page.wait_for_selector("text=There is no query image yet")
    huge = tmp_path / "huge.png"
    huge.write_bytes(bytes(MAX_BYTES + 1))
    page.locator("#query input[type=file]").first.set_input_files(str(huge))
    page.wait_for_selector("text=exceed the maximum allowed size")
    page.locator("#query input[type=file]").first.set_input_files(str(broken))
    page.wait_for_selector("#query img", state="attached")
    page.get_by_role("button", name="Match", exact=True).click()
    page.wait_for_selector("text=The query image cannot be read")
    page.wait_for_selector("#match:not([disabled])")  # and the page can be used again


def test_a_link_restores_the_settings_and_a_phone_shows_all(visit, served):
    page = visit(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.wait_for_function("location.search.includes('iters_global=2') && location.search.includes('model=')")
    assert "max_size=128" in page.url
    page.get_by_text("Settings").click()
    page.locator("#iters_global input[type=number]").fill("1")
    page.locator("#iters_global input[type=number]").press("Tab")
    page.wait_for_function("location.search.includes('iters_global=1')")
    assert page.locator("#link textarea, #link input").first.input_value() == page.url
    box = page.locator(".gc-pick").bounding_box()
    text = after(page, lambda: page.locator(".gc-pick").tap(position={"x": box["width"] / 2, "y": box["height"] / 2}))
    assert "Reference pixel (2" in text
    after(page, lambda: page.get_by_text("Local layer").click(), ".gc-why p:nth-of-type(2)")
