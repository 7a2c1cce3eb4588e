"""The console of a cluster with users: the login, and what the page offers to whom.

As for `test_console.py`, `ci/browser.sh` has the packages; without them the file is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

import forebay
import pytest
from conftest import UsersCluster
from forebay_users import ADMIN, ADMIN_PASSWORD, users_cluster

pytest.importorskip("playwright", reason='PYTHONPATH="$(ci/browser.sh)" has Playwright')

from forebay_browser import Console, browser  # noqa: F401
from playwright.sync_api import Browser, expect

PASSWORD = "a-long-password-of-a-user"
SLOW_OBJECTS = 400
DRAWN_AFTER_MS = 1200
MAY = "async () => (await import('/ui/api.js')).can('run-jobs', 'ais://slow')"


def log_in(console: Console, user: str, password: str) -> None:
    console.page.get_by_label("User").fill(user)
    console.page.get_by_label("Password").fill(password)
    console.page.get_by_role("button", name="Log in").click()


def test_a_cluster_with_users_asks_for_a_login(browser: Browser, users_without_tls: UsersCluster) -> None:
    console = Console.open(browser, users_without_tls.endpoint)
    console.expected = ("401 (Unauthorized)",)
    console.heading("Log in")
    assert not console.findings()
    log_in(console, ADMIN, "wrong")
    expect(console.page.get_by_role("alert")).to_have_text("The user or the password is wrong.")
    log_in(console, ADMIN, ADMIN_PASSWORD)
    console.heading("Overview")
    console.is_live()
    expect(console.page.locator("#user")).to_have_text(ADMIN)
    stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    assert "eyJ" not in console.page.evaluate(stored)
    console.page.get_by_role("button", name="Log out").click()
    console.heading("Log in")
    console.page.reload()
    console.heading("Log in")
    console.close()


def test_changes_are_offered_to_users_who_may_make_them(
    browser: Browser, users_without_tls: UsersCluster
) -> None:
    cluster = users_without_tls
    admin = forebay.Client(cluster.endpoint, token=cluster.admin_token)
    admin.bucket("seen").create(exist_ok=True).object("x.txt").put(b"seen")
    for name in ("console-reader", "console-writer"):
        cluster.add_user(name, name.removeprefix("console-"), password=PASSWORD)
    for name in ("console-reader", "console-writer"):
        console = Console.open(browser, cluster.endpoint, "objects?provider=ais&bucket=seen")
        console.expected = ("401 (Unauthorized)",)
        console.heading("Log in")
        log_in(console, name, PASSWORD)
        console.heading("ais://seen")
        console.page.get_by_role("link", name="x.txt").click()
        expect(console.page.locator(".view pre")).to_have_text("seen")
        may = console.page.evaluate(
            "async () => (await import('/ui/api.js')).can('run-jobs', 'ais://seen')"
        )
        assert may == (name == "console-writer")
        console.close()


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UsersCluster]:
    """A cluster with users, and a prefetch that runs: its backend answers twice a second."""
    source = tmp_path_factory.mktemp("slow-source")
    for number in range(SLOW_OBJECTS):
        (source / f"{number:03}.bin").write_bytes(bytes(1_000))
    with users_cluster(tmp_path_factory.mktemp("slow-cluster"), ["--folder-root", str(source)]) as cluster:
        admin = forebay.Client(cluster.endpoint, token=cluster.admin_token)
        bucket = admin.bucket("slow").create(folder=source)
        cluster.as_admin("bucket", "set", "ais://slow", "cloud.requests_per_second=2")
        job = bucket.prefetch(prefix="")
        yield cluster
        job.stop()


@pytest.mark.parametrize("role", ["viewer", "reader", "writer"])
def test_buttons_for_changes_are_there_for_a_writer_only(browser: Browser, slow: UsersCluster, role: str) -> None:
    name = f"button-{role}"
    slow.add_user(name, role, password=PASSWORD)
    console = Console.open(browser, slow.endpoint, "jobs")
    console.expected = ("401 (Unauthorized)",)
    log_in(console, name, PASSWORD)
    page = console.page
    row = page.get_by_role("table", name="Jobs").locator("tbody tr").first
    expect(row).to_contain_text("Running")
    assert page.evaluate(MAY) == (role == "writer")
    cancel, start = row.get_by_role("button", name="Cancel"), page.get_by_role("button", name="Start prefetch")
    wait_until_drawn(console)
    expect(cancel).to_be_visible(visible=role == "writer")
    expect(start).to_be_visible(visible=role == "writer")
    console.go("objects?provider=ais&bucket=slow")
    page.get_by_role("link", name="000.bin").wait_for()
    wait_until_drawn(console)
    expect(page.get_by_role("button", name="Prefetch")).to_be_visible(visible=role == "writer")
    console.close()


def wait_until_drawn(console: Console) -> None:
    """Waits until the page has drawn with the rights that it has just learned: they are asked once."""
    console.page.evaluate(MAY)
    console.page.wait_for_timeout(DRAWN_AFTER_MS)
