"""The web console in a real browser, on live clusters: every screen, changes, and faults.

`ci/browser.sh` fetches Playwright and axe into a folder of its own; `make test-py` runs this file with that
folder in PYTHONPATH. Elsewhere the file is skipped.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import forebay
import pytest
from conftest import Cluster, wait_until
from forebay_cluster import binary
from PIL import Image, ImageDraw

pytest.importorskip("playwright", reason='PYTHONPATH="$(ci/browser.sh)" has Playwright')

from forebay_browser import Console, browser  # noqa: F401
from playwright.sync_api import Browser, expect

MAX_CONSOLE_BYTES = 300 << 10
DEAD_WITHIN_S = 5.0
HOSTILE = "<img src=x onerror=alert(1)>.txt"
SCREENS = ["overview", "nodes", "buckets", "jobs", "feeds"]
SLOW_OBJECTS = 400


def picture(number: int) -> bytes:
    """A PNG of 64 × 48 pixels."""
    image = Image.new("RGB", (64, 48), (20 * number % 255, 90, 160))
    ImageDraw.Draw(image).ellipse((8 + number, 8, 40, 40), fill=(240, 200, 20 * number % 255))
    out = io.BytesIO()
    image.save(out, "png")
    return out.getvalue()


def shard() -> bytes:
    """A TAR with pictures, their labels, and a member of a hostile name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        members = [(f"{n:03}.{kind}", data) for n in range(8) for kind, data in [
            ("png", picture(n)), ("json", b'{"label": %d, "split": "train"}' % n)]]
        for name, data in [*members, (HOSTILE, b"plain"), ("bytes.bin", bytes(range(256)))]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def fill(endpoint: str, folder: Path) -> None:
    """Buckets with objects of all kinds, and one whose backend is slow."""
    client = forebay.Client(endpoint)
    bucket = client.bucket("pictures").create(exist_ok=True)
    bucket.object("shards/train-000.tar").put(shard())
    bucket.object("one.png").put(picture(3))
    bucket.object("notes.txt").put("a line\nand another: ünïcödé\n".encode())
    bucket.object(HOSTILE).put(b"plain")
    for number in range(40):
        bucket.object(f"many/{number:03}.bin").put(bytes(20_000))
    source = folder / "slow"
    source.mkdir()
    for number in range(SLOW_OBJECTS):
        (source / f"{number:04}.bin").write_bytes(bytes(4_000))


@pytest.fixture(scope="module")
def filled(start_cluster: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """One gateway and three targets with data, and a bucket whose backend answers ten times a second."""
    folder = tmp_path_factory.mktemp("sources")
    cluster = start_cluster(options=["--folder-root", str(folder)])
    fill(cluster.endpoint, folder)
    slow = forebay.Client(cluster.endpoint).bucket("slow").create(folder=folder / "slow")
    slow.prefetch(prefix="000").wait()
    words = ["bucket", "set", "ais://slow", "cloud.requests_per_second=10"]
    subprocess.run([binary(), *words, "--endpoint", cluster.endpoint], check=True, timeout=60)
    return cluster


@pytest.fixture
def console(browser: Browser, filled: Cluster) -> Iterator[Console]:
    opened = Console.open(browser, filled.endpoint)
    yield opened
    opened.close()


def fetched(url: str) -> tuple[bytes, dict[str, str]]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read(), {name.lower(): value for name, value in answer.headers.items()}


def test_all_files_are_small_and_have_the_policy(cluster: Cluster) -> None:
    page = f"{cluster.endpoint}/ui/"
    found: dict[str, int] = {}
    pending = [""]
    while pending:
        name = pending.pop()
        body, headers = fetched(page + name)
        found[name] = len(body)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        for part in ("connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
            assert part in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["etag"] and headers["cache-control"] == "no-cache"
        named = re.findall(rb'(?:src=|href=|from )"(?:\./)?([a-z]+\.[a-z]+)"', body)
        pending += [new for new in map(bytes.decode, named) if new not in found and new not in pending]
    assert len(found) > 10, found
    assert sum(found.values()) <= MAX_CONSOLE_BYTES
    assert urllib.request.urlopen(f"{cluster.endpoint}/ui", timeout=10).url == page


def test_the_overview_shows_the_traffic_as_it_happens(console: Console, filled: Cluster) -> None:
    console.is_live()
    page = console.page
    bucket = forebay.Client(filled.endpoint).bucket("pictures")
    tile = page.locator(".tile", has_text="Read").locator("dd")

    def is_shown() -> bool:
        for number in range(20):
            bucket.object(f"many/{number:03}.bin").get().read()
        return not tile.inner_text().startswith(("0 B", "–"))

    wait_until(is_shown, "the read bytes of the cluster")
    expect(page.get_by_label("Busiest buckets").first).to_contain_text("ais://pictures")
    expect(page.locator(".tile", has_text="Nodes that answer").locator("dd")).to_have_text("4 of 4")
    charts = page.locator("svg.chart")
    assert charts.count() == 4
    for number in range(4):
        assert "of the last five minutes" in (charts.nth(number).get_attribute("aria-label") or "")
    wait_until(lambda: "L" in (page.locator("path.line").first.get_attribute("d") or ""), "a line")


def test_nodes_and_disks_are_listed(console: Console, filled: Cluster) -> None:
    console.go("nodes")
    console.heading("Nodes")
    for node in [*filled.info["gateways"], *filled.targets]:
        row = console.page.locator("tr", has=console.page.get_by_text(node["id"], exact=True)).first
        expect(row).to_contain_text("Alive")
        expect(row).to_contain_text(node["url"])
    disks = console.page.get_by_role("table", name="Disks").locator("tbody tr")
    expect(disks).to_have_count(sum(len(node["disks"]) for node in filled.targets))


def test_a_killed_target_is_shown_within_seconds(browser: Browser, start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster()
    console = Console.open(browser, cluster.endpoint, "nodes")
    console.is_live()
    victim = cluster.targets[1]["id"]
    row = console.page.locator("tr", has=console.page.get_by_text(victim, exact=True)).first
    expect(row).to_contain_text("Alive")
    cluster.kill(victim)
    begin = time.monotonic()
    expect(row.locator(".badge.bad")).to_have_text(re.compile("No answer|Down"), timeout=DEAD_WITHIN_S * 1000)
    assert time.monotonic() - begin <= DEAD_WITHIN_S
    expect(row.locator(".badge.bad")).to_have_text("Down")
    console.go("overview")
    expect(console.page.locator(".alerts")).to_contain_text("ForebayTargetDead")
    console.close()


def test_buckets_have_their_warmth(console: Console) -> None:
    console.go("buckets")
    row = console.page.locator("tr", has=console.page.get_by_role("link", name="ais://pictures", exact=True))
    expect(row).to_contain_text("stored here")
    expect(row).to_contain_text("44")
    row.get_by_role("link").click()
    console.heading("ais://pictures")
    expect(console.page.get_by_role("link", name="many/")).to_be_visible()
    expect(console.page.get_by_role("table", name="Objects").get_by_text("cached", exact=True).first).to_be_visible()
    console.page.get_by_label("Names that begin with").fill("many/03")
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("table", name="Objects").locator("tbody tr")).to_have_count(10)


def test_names_of_objects_are_text_and_never_markup(console: Console) -> None:
    console.go("objects?provider=ais&bucket=pictures")
    link = console.page.get_by_role("link", name=HOSTILE)
    expect(link).to_have_text(HOSTILE)
    link.click()
    console.heading(HOSTILE)
    expect(console.page.locator(".view pre")).to_have_text("plain")
    console.go("shard?provider=ais&bucket=pictures&name=shards/train-000.tar")
    expect(console.page.get_by_role("option", name=HOSTILE)).to_be_visible()
    for name in (HOSTILE, "\"><script>alert(1)</script>"):
        console.page.evaluate("(hash) => { location.hash = hash; }", f"#/objects?provider=ais&bucket={name}")
        console.page.locator(".problem").filter(has_text="name").wait_for()
    assert console.page.locator("main script, main img").count() == 0
    console.expected = ("400 (Bad Request)",)


def test_a_picture_of_a_shard_is_seen(console: Console) -> None:
    page = console.page
    console.go("objects?provider=ais&bucket=pictures")
    page.get_by_role("link", name="shards/").click()
    page.get_by_role("link", name="train-000.tar").click()
    console.heading("train-000.tar")
    expect(page.get_by_role("option")).to_have_count(18)
    seen = page.locator(".view img")
    expect(seen).to_be_visible()
    assert seen.evaluate("(image) => [image.naturalWidth, image.naturalHeight]") == [64, 48]
    # The list goes by keyboard, and each member is read by its range.
    page.get_by_role("listbox").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".view pre")).to_contain_text('"split": "train"')
    page.keyboard.press("End")
    expect(page.locator(".view pre")).to_contain_text("00000000  00 01 02 03")
    page.get_by_label("Names that contain").fill("005.png")
    expect(page.get_by_role("option")).to_have_count(1)
    expect(page.locator(".view-title")).to_have_text("005.png")
    assert seen.evaluate("(image) => image.naturalWidth") == 64


def test_objects_that_are_no_shard_are_shown(console: Console) -> None:
    page = console.page
    console.go("objects?provider=ais&bucket=pictures")
    page.get_by_role("link", name="one.png").click()
    expect(page.locator(".view img")).to_be_visible()
    assert page.locator(".view img").evaluate("(image) => image.naturalWidth") == 64
    page.go_back()
    page.get_by_role("link", name="notes.txt").click()
    expect(page.locator(".view pre")).to_contain_text("ünïcödé")


def test_a_prefetch_is_started_and_cancelled_from_the_page(console: Console, filled: Cluster) -> None:
    page = console.page
    console.go("jobs")
    page.get_by_label("Bucket").select_option("ais://slow")
    page.get_by_role("button", name="Start prefetch").click()
    page.get_by_role("dialog").get_by_role("button", name="Prefetch").click()
    expect(page.locator("#notices")).to_contain_text("was started")
    row = page.get_by_role("table", name="Jobs").locator("tbody tr").first
    expect(row).to_contain_text("prefetch")
    expect(row).to_contain_text("Running")
    expect(row).to_contain_text(re.compile(rf"[0-9.]+ % of {SLOW_OBJECTS}"))
    expect(row.locator("td").nth(6)).to_have_text(re.compile(r"[0-9]+ s"))
    console.go("overview")
    expect(page.get_by_role("table", name="Running jobs")).to_contain_text("prefetch")
    console.go("jobs")
    row.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(row).to_contain_text("Stopped")
    expect(row.get_by_role("button")).to_be_hidden()
    job = json.loads(fetched(f"{filled.endpoint}/api/v1/jobs/{row.locator('.under').inner_text()}")[0])
    assert job["state"] == "stopped"
    assert job["objects"] < SLOW_OBJECTS


def report_feeds(endpoint: str) -> None:
    """Reports two ranks of a training loop, as their loaders do."""
    for rank, causes in enumerate([{"cold": 6.0, "network": 1.5, "decode": 1.0}, {"worker": 0.5}]):
        feed = {"id": f"console-{rank}", "name": "resnet", "host": f"trainer-{rank}", "rank": rank, "steps": 1200,
                "buckets": ["ais://pictures"], "bytes": 4 << 30, "step_s": 40.0,
                "wait_s": sum(causes.values()) + 0.5, "causes": causes}
        body = json.dumps(feed).encode()
        request = urllib.request.Request(f"{endpoint}/api/v1/feeds/{feed['id']}", body, method="PUT")
        urllib.request.urlopen(request, timeout=10).read()


def test_feeds_show_what_each_client_waits_for(console: Console, filled: Cluster) -> None:
    report_feeds(filled.endpoint)
    console.go("feeds")
    console.heading("Training feeds")
    rows = console.page.get_by_role("table", name="Training feeds").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("rank 0 on trainer-0")
    expect(rows.nth(0)).to_contain_text("1,200")
    expect(rows.nth(0)).to_contain_text("22.5 %")
    expect(rows.nth(0)).to_contain_text("cold 66.7 %, network 16.7 %, decode 11.1 %")
    expect(rows.nth(0).locator(".stack .part")).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("worker 50.0 %, unknown 50.0 %")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, filled: Cluster, scheme: str) -> None:
    console = Console.open(browser, filled.endpoint, color_scheme=scheme)
    console.is_live()
    report_feeds(filled.endpoint)
    assert console.page.evaluate("document.documentElement.dataset.theme") == scheme
    more = ["objects?provider=ais&bucket=pictures", "shard?provider=ais&bucket=pictures&name=shards/train-000.tar"]
    for screen in [*SCREENS, *more]:
        console.go(screen)
        wait_for_content(console)
        assert not console.findings(), screen
    console.go("jobs")
    console.page.get_by_role("button", name="Start prefetch").click()
    console.page.get_by_role("dialog").wait_for()
    assert not console.findings()
    console.page.keyboard.press("Escape")
    console.close()


def wait_for_content(console: Console) -> None:
    """Waits until a table, a list or a picture of the screen has its data."""
    console.page.locator("main td, main [role=option], main .tile").first.wait_for()


def test_the_theme_follows_the_system_and_the_switch(browser: Browser, cluster: Cluster) -> None:
    console = Console.open(browser, cluster.endpoint, color_scheme="dark")
    console.is_live()
    theme = "document.documentElement.dataset.theme"
    assert console.page.evaluate(theme) == "dark"
    console.page.emulate_media(color_scheme="light")
    wait_until(lambda: console.page.evaluate(theme) == "light", "the theme of the system")
    console.page.get_by_role("button", name="Dark theme").click()
    assert console.page.evaluate(theme) == "dark"
    console.page.reload()
    console.is_live()
    assert console.page.evaluate(theme) == "dark"
    console.close()


def test_everything_is_reached_by_the_keyboard(console: Console) -> None:
    page = console.page
    console.is_live()
    press = page.keyboard.press

    def focused() -> str:
        return str(page.evaluate("document.activeElement.textContent.trim()"))

    press("Tab")
    assert focused() == "Skip to the content"
    for expected in ("Forebay", "Overview", "Nodes", "Buckets"):
        press("Tab")
        assert focused() == expected
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    press("Enter")
    console.heading("Buckets")
    assert focused() == "Buckets"
    page.locator("td a").first.wait_for()
    for _ in range(4):
        press("Tab")
        if focused() == "ais://pictures":
            break
    press("Enter")
    console.heading("ais://pictures")
    page.get_by_role("link", name="shards/").focus()
    press("Enter")
    page.get_by_role("link", name="train-000.tar").wait_for()
    page.get_by_role("link", name="train-000.tar").focus()
    press("Enter")
    page.get_by_role("option").first.wait_for()
    page.get_by_role("listbox").focus()
    press("ArrowDown")
    expect(page.locator("[aria-selected=true]")).to_contain_text("000.json")


def test_a_gateway_that_went_away_is_noticed_and_found_again(
    browser: Browser, start_cluster: Callable[..., Cluster]
) -> None:
    cluster = start_cluster(targets=1)
    console = Console.open(browser, cluster.endpoint)
    console.is_live()
    gateway = cluster.info["gateways"][0]["id"]
    cluster.kill(gateway)
    expect(console.page.locator("#live")).to_have_text("No connection")
    command = (cluster.folder / gateway / "cmd").read_text()
    again = subprocess.Popen(["sh", "-c", f"exec {command}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        console.is_live()
    finally:
        again.terminate()
        again.wait(30)
    console.expected = ("ERR_",)
    console.close()
