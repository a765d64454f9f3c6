"""The page that follows a run in a real browser: what it draws, and what is written meanwhile."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nngrad_command.following.run_folder import RunFolder
from nngrad_command.following.serving import Server
from tests.browser.watching import watched_page

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[browser]'").expect
pytestmark = pytest.mark.slow

HEAD = "step,seconds,critic_loss,generator_loss,critic_gradient_norm\n"
SOON = 10_000
"""Milliseconds within which the page, which asks each second, must show what is new."""


def png(width: int) -> bytes:
    """A grey picture, one pixel high."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" + bytes(width))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "<img src=x onerror=alert(1)>"
    (run / "samples").mkdir(parents=True)
    (run / "metrics.csv").write_text(HEAD + "1,0.5,2.0,0.5,1.0\n2,1.0,1.5,0.25,nan\n")
    (run / "config.toml").write_text('recipe = "gan"\nsteps = 8\n')
    (run / "samples" / "step-00000002.png").write_bytes(png(2))
    return run


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with Server(RunFolder(folder)) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    with watched_page(browser, server.address) as opened:
        expect(opened.locator("#charts svg[role=img]")).to_have_count(2, timeout=SOON)
        yield opened


def curves(page: Any, title: str) -> list[str]:
    """What the lines of a chart are drawn along."""
    card = page.locator("section.card", has=page.get_by_role("heading", name=title, exact=True))
    return [path.get_attribute("d") for path in card.locator("svg[role=img] path").all()]


def shows(page: Any, width: int) -> None:
    """It comes to show the picture that is so many pixels wide."""
    expect(page.locator("#picture")).to_have_js_property("naturalWidth", width, timeout=SOON)


def test_it_draws_what_is_there(page: Any, folder: Path) -> None:
    assert page.inner_text("#title") == f"gan: {folder.name}"  # as text
    assert page.inner_text("#steps") == "step 2 of 8"
    assert page.inner_text("#status") == "running"
    assert page.get_by_role("progressbar").get_attribute("value") == "2"
    first, second = curves(page, "losses")
    assert first.count("L") == second.count("L") == 1 and first != second
    named = page.get_by_role("img", name="losses: critic loss 1.5, generator loss 0.25")
    assert named.count() == 1
    assert page.get_by_role("img", name="norms of gradients: critic gradient norm not a number").count() == 1
    shows(page, 2)


def test_it_follows_what_is_written(page: Any, folder: Path) -> None:
    with (folder / "metrics.csv").open("a") as metrics:
        metrics.write("3,1.5,1.25,0.125,0.5\n4,2.0,1.0,0.1,")  # the last line is not finished
        metrics.flush()
        expect(page.locator("#steps")).to_have_text("step 3 of 8", timeout=SOON)
        assert [each.count("L") for each in curves(page, "losses")] == [2, 2]
        (folder / "samples" / "step-00000004.png").write_bytes(png(4))
        metrics.write("0.25\n" + "".join([f"{n},{n / 2},1,0.1,0.25\n" for n in range(5, 9)]))
    expect(page.locator("#status")).to_have_text("finished", timeout=SOON)
    shows(page, 4)
    assert page.title() == f"100% gan: {folder.name}"
    assert page.inner_text("#pictured") == "after step 4"


def test_what_was_not_measured_is_no_gap(page: Any, folder: Path) -> None:
    """A cell is empty where nothing was measured: the line goes on, and the last value is said."""
    head = "seconds,loss,val_loss\n"  # and steps are counted where there is no column of them
    (folder / "metrics.csv").write_text(head + "1,4,8\n2,3,\n3,2,\n4,1,5\n5,0.5,\n")
    expect(page.locator("#steps")).to_have_text("step 5 of 8", timeout=SOON)
    loss, validation = curves(page, "losses")
    assert (loss.count("L"), validation.count("L"), validation.count("M")) == (4, 1, 1)
    assert page.get_by_role("img", name="losses: loss 0.5, val loss 5").count() == 1


def test_older_pictures_axes_and_the_table(page: Any, folder: Path) -> None:
    before = curves(page, "losses")
    page.get_by_label("y axis").select_option("log")
    assert curves(page, "losses") != before
    page.get_by_text("the last values as a table").click()
    assert page.locator("#table tr").all_inner_texts()[1:] == ["2\t1\t1.5\t0.25\tnot a number", "1\t0.5\t2\t0.5\t1"]
    (folder / "samples" / "step-00000003.png").write_bytes(png(3))
    shows(page, 3)
    page.get_by_label("which picture").press("ArrowLeft")
    shows(page, 2)
    assert not page.get_by_label("the latest one").is_checked()


def test_the_keyboard_reads_values(page: Any) -> None:
    chart = page.get_by_role("img", name="losses: ")
    chart.focus()
    page.keyboard.press("ArrowLeft")
    keys = page.locator(".keys").first
    assert "at step 1" in keys.inner_text() and "2" in keys.inner_text()
    page.keyboard.press("ArrowRight")
    assert "at step 2" in keys.inner_text()
