"""Colours and patterns of drawings."""

from __future__ import annotations

from typing import NamedTuple


class Tone(NamedTuple):
    """The colours of an order of differentiation."""

    fill: str
    line: str
    band: str
    """What is behind the column."""


class Style(NamedTuple):
    """How a drawing looks."""

    background: str
    text: str
    faint: str
    """Of notes, and of arrows from order to order."""
    leaf: str
    frame: str
    tones: tuple[Tone, ...]
    """For orders of differentiation; what has a higher one begins again with the second."""
    patterned: bool
    """Whether orders are told apart by patterns, and arrows by dashes."""

    def tone(self, order: int) -> Tone:
        """That of an order."""
        return self.tones[order if order < len(self.tones) else 1 + (order - 1) % (len(self.tones) - 1)]


STYLES = {
    "light": Style(
        "#ffffff", "#1c2733", "#6a7683", "#f4f5f7", "#a9b2bc",
        (
            Tone("#e3edf8", "#2f6db5", "#f7fafd"), Tone("#fce8d8", "#c4631c", "#fefaf6"),
            Tone("#e1f2e5", "#2f8a4b", "#f7fcf8"), Tone("#f1e4f6", "#8a4aa3", "#fcf8fd"),
            Tone("#fbf1cf", "#98790f", "#fefcf3"), Tone("#dff3f3", "#1f8288", "#f6fcfc"),
        ), False,
    ),
    "dark": Style(
        "#14181d", "#e8ecf1", "#97a3b0", "#252b33", "#56616d",
        (
            Tone("#1f3550", "#6ca8ec", "#171d25"), Tone("#4a2f1a", "#ee9a55", "#1f1a17"),
            Tone("#1d3d28", "#68c586", "#171f1a"), Tone("#3d2648", "#c68ade", "#1d1920"),
            Tone("#403613", "#d9b93c", "#1e1c15"), Tone("#153b3d", "#55bfc5", "#151e1f"),
        ), False,
    ),
    "print": Style(
        "#ffffff", "#000000", "#4d4d4d", "#ffffff", "#7f7f7f",
        (
            Tone("#ffffff", "#000000", "#ffffff"), Tone("#ececec", "#000000", "#ffffff"),
            Tone("#ffffff", "#000000", "#ffffff"), Tone("#ffffff", "#000000", "#ffffff"),
            Tone("#dcdcdc", "#000000", "#ffffff"), Tone("#ffffff", "#000000", "#ffffff"),
        ), True,
    ),
}  # fmt: skip
"""By name."""

PATTERNS = {
    2: "M0 6L6 0M-1 1L1 -1M5 7L7 5",
    3: "M2.2 3a0.8 0.8 0 1 0 1.6 0a0.8 0.8 0 1 0 -1.6 0",
    5: "M0 3H6M3 0V6",
}
"""What fills boxes in print, by the number of the tone: paths in a square of 6."""
