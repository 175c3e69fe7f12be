"""Waits for a page."""

from __future__ import annotations

from playwright.sync_api import Page


def until(page: Page, condition: str) -> None:
    """Wait until an expression is true.

    As a function: an expression is evaluated anew at each look, and the page's policy forbids that from the second on.
    """
    page.wait_for_function(f"() => {condition}")


def until_drawn(page: Page) -> None:
    """Wait for the page's first drawing."""
    until(page, "document.documentElement.dataset.drawn === 'yes'")
