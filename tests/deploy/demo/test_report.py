"""The report: three files, and no text that becomes markup."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

from deploy.demo.report import write
from tests.support.demo import summary

VOID = {"meta", "link"}


class Page(HTMLParser):
    """Notes what is open, every tag, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_three_files(tmp_path: Path) -> None:
    """The page, the chart alone, and the numbers for programs; the folder is made."""
    page = write(summary(), tmp_path / "new" / "out")
    assert page.name == "report.html"
    ET.parse(page.parent / "chart.svg")
    assert json.loads((page.parent / "summary.json").read_text())["answered"] == 3


def test_text_is_never_markup(tmp_path: Path) -> None:
    """What models, machines, sentences and failures say is shown as it is; every tag is one of ours and is closed."""
    page = Page()
    page.feed(write(summary(), tmp_path).read_text(encoding="utf-8"))
    assert page.open == []
    assert not page.tags & {"model", "it", "request"}
    for text in ("a <model> & more", "Why <it> grew", "1 < 2 & so on.", "503: no slot <b>", "first <request>"):
        assert text in page.text


def test_says_what_is_unknown(tmp_path: Path) -> None:
    """A model that did not go to zero, and times that nobody measured, are dashes."""
    page = Page()
    page.feed(write(summary(), tmp_path).read_text(encoding="utf-8"))
    assert "-last answer to zero replicas" in page.text
    assert "held, burst0----" in page.text
    assert "3 of 4" in page.text
