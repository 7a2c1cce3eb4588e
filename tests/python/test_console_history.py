"""The traffic from before the console was opened, and data that moves while it is open.

As for `test_console.py`, `ci/browser.sh` has the packages; without them the file is skipped.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable
from typing import Any

import forebay
import pytest
from conftest import Cluster, wait_until
from forebay_cluster import binary

pytest.importorskip("playwright", reason='PYTHONPATH="$(ci/browser.sh)" has Playwright')

from forebay_browser import Console, browser  # noqa: F401
from playwright.sync_api import Browser, expect

OBJECTS = 400
OBJECT_BYTES = 20_000
# Every text of a part of the page, also one that is there for a moment only.
RECORD = """(part) => {
    window.recorded = [];
    const record = () => window.recorded.push(part.innerText);
    new MutationObserver(record).observe(part, { childList: true, characterData: true, subtree: true });
}"""


def history(endpoint: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{endpoint}/api/v1/overview/history", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def write_objects(endpoint: str) -> forebay.Bucket:
    bucket = forebay.Client(endpoint).bucket("moved").create(exist_ok=True)
    for number in range(OBJECTS):
        bucket.object(f"{number:03}.bin").put(bytes(OBJECT_BYTES))
    return bucket


def read_objects(endpoint: str) -> None:
    bucket = write_objects(endpoint)
    for number in range(20):
        bucket.object(f"{number:03}.bin").get().read()


def test_a_page_begins_with_the_traffic_from_before_it_was_opened(browser: Browser, cluster: Cluster) -> None:
    read_objects(cluster.endpoint)

    def reads() -> float:
        return float(sum(point["read_bytes_per_s"] for point in history(cluster.endpoint)["points"]))

    # A slot of five seconds is shown when it has ended.
    wait_until(lambda: reads() > 0, "a point with the reads", 15)
    console = Console.open(browser, cluster.endpoint)
    # No live figures arrive, so the lines are those of the history.
    console.page.route("**/api/v1/overview/live", lambda route: route.abort())
    console.page.reload()
    console.page.locator("#live.bad").wait_for()
    for title in ("Throughput", "Latency", "Requests"):
        line = console.page.locator(f'svg.chart[aria-label^="{title} "] path.line.one')
        wait_until(lambda line=line: "M" in (line.get_attribute("d") or ""), f"a line of {title}")  # type: ignore[misc]
    expect(console.page.locator(".hint.warn")).to_be_hidden()
    console.expected = ("ERR_",)
    console.close()


def test_a_history_without_a_node_names_it(browser: Browser, start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster(targets=2)
    victim = cluster.targets[0]["id"]
    cluster.kill(victim)
    assert history(cluster.endpoint)["silent_nodes"] == [victim]
    console = Console.open(browser, cluster.endpoint)
    expect(console.page.locator(".hint.warn")).to_contain_text(f"without {victim}: no answer")
    console.close()


def test_a_drain_is_seen_while_it_moves_objects(browser: Browser, cluster: Cluster) -> None:
    write_objects(cluster.endpoint)
    console = Console.open(browser, cluster.endpoint, "nodes")
    console.is_live()
    leaving = cluster.targets[2]["id"]
    row = console.page.locator("tr", has=console.page.get_by_text(leaving, exact=True)).first
    moves = console.page.locator("section", has=console.page.get_by_role("heading", name="What moves"))
    expect(row).to_contain_text("Alive")
    moves.evaluate(RECORD)

    def node(command: str) -> None:
        words = ["node", command, leaving, "--yes", "--endpoint", cluster.endpoint]
        subprocess.run([binary(), *words], check=True, timeout=60)

    def is_recorded(pattern: str) -> bool:
        texts = console.page.evaluate("window.recorded")
        return any(re.search(pattern, text) for text in texts)

    node("drain")
    expect(row).to_contain_text("Drain")
    wait_until(lambda: is_recorded(r"rebalance\s|drain\s"), "what moves from the target")
    node("uncordon")
    expect(row).to_contain_text("Alive")
    console.close()
