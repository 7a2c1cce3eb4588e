"""A real browser for the tests of the console: Chromium, driven by Playwright, judged by axe.

`ci/chromium.sh` has the browser and `ci/browser.sh` the packages; `make test-py` runs the tests of the
console with these packages in PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import axe_playwright_python
import pytest
from forebay_chart import tool
from playwright.sync_api import Browser, Page, sync_playwright

# Findings of axe that fail a test; the others are advice.
GRAVE = {"serious", "critical"}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
WAIT_MS = 15_000
# Without the network of a browser's maker: the tests reach no other machine.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A running browser; skips without one, or fails with FOREBAY_REQUIRE_CHROMIUM set."""
    path = tool("chromium.sh", "FOREBAY_REQUIRE_CHROMIUM")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield running
        finally:
            running.close()


@dataclass
class Console:
    """A page with the console, and everything that a page without faults does not have."""

    page: Page
    endpoint: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    # Texts of errors of the browser's console that a test causes.
    expected: tuple[str, ...] = ()

    @classmethod
    def open(cls, browser: Browser, endpoint: str, screen: str = "overview", **context: Any) -> Self:
        """Opens a screen in a context of its own: nothing is left of other tests."""
        own = browser.new_context(viewport={"width": 1280, "height": 900}, **context)
        own.set_default_timeout(WAIT_MS)
        console = cls(own.new_page(), endpoint)
        console.watch()
        console.page.goto(f"{endpoint}/ui/#/{screen}")
        return console

    def watch(self) -> None:
        """Records errors, requests to other origins, and violations of the policy."""
        page = self.page
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        own = urlsplit(self.endpoint).netloc

        def check(url: str) -> None:
            parts = urlsplit(url)
            if parts.scheme not in ("blob", "data") and parts.netloc != own:
                self.foreign.append(url)

        page.on("request", lambda request: check(request.url))
        page.expose_function("noteViolation", lambda text: self.violations.append(text))
        page.add_init_script(
            "addEventListener('securitypolicyviolation',"
            " (event) => noteViolation(`${event.violatedDirective} ${event.blockedURI}`))"
        )

    def go(self, screen: str) -> None:
        """Opens a screen by its address, as a link does."""
        self.page.evaluate("(screen) => { location.hash = `#/${screen}`; }", screen)

    def heading(self, text: str) -> None:
        """Waits until the screen with this title is open."""
        self.page.get_by_role("heading", level=1, name=text).wait_for()

    def is_live(self) -> None:
        """Waits for the figures of the cluster."""
        self.page.locator("#live.good").wait_for()

    def findings(self) -> list[str]:
        """The serious and critical findings of axe on the page as it is now."""
        self.page.evaluate(AXE.read_text())
        result = self.page.evaluate("(rules) => axe.run({ runOnly: rules })", RULES)
        return [
            f"{found['impact']} {found['id']}: {node['target']} {node['failureSummary']}"
            for found in result["violations"]
            if found["impact"] in GRAVE
            for node in found["nodes"]
        ]

    def close(self) -> None:
        """Closes the page; fails the test for what a page without faults does not have."""
        errors = [text for text in self.errors if not any(known in text for known in self.expected)]
        self.page.context.close()
        assert not errors, errors
        assert not self.foreign, self.foreign
        assert not self.violations, self.violations
