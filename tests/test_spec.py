"""
Pointers lead somewhere: into the specifications (`Spec: store.md, section 12.4`), and of documents
to tests and files.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.pages import DOCUMENTS, PAGES, REPO

SPEC = REPO / "docs" / "spec"
_POINTER = re.compile(r'Spec: (.+?)(?:\n\s*\n|"""|\Z)', re.DOTALL)
_NUMBER = r"\d+(?:\.\d+)*"
_REFERENCE = re.compile(
    rf"(\w+)\.md((?:(?:,|\s+and|\s+to)*\s+(?:(?:section|chapter)s?\s+)?{_NUMBER})*)"
)
_BEGINS = re.compile(rf"^#+ ({_NUMBER})|^(?:\| )?(\d+\.\d+) ", re.MULTILINE)
SECTIONS = {
    path.stem: {heading or row for heading, row in _BEGINS.findall(path.read_text())}
    for path in SPEC.glob("*.md")
}
"""Numbers of headings, and of paragraphs and rows of tables that have one."""


def dangling(source: str) -> Iterator[str]:
    """What the pointers of a file name and no specification has."""
    for (pointer,) in map(re.Match.groups, _POINTER.finditer(source)):
        references = _REFERENCE.findall(pointer)
        if not references:
            yield pointer
        for name, numbers in references:
            known = SECTIONS.get(name)
            if known is None:
                yield f"{name}.md"
                continue
            for number in re.findall(_NUMBER, numbers):
                if number not in known:
                    yield f"{name}.md, {number}"


_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_that_a_document_names_is_there() -> None:
    named = {match for path in DOCUMENTS for match in _TEST.findall(path.read_text())}
    assert len(named) > 30
    missing = {
        (path, name)
        for path, name in named
        if not re.search(rf"^ *(async )?def {name}\(", (REPO / path).read_text(), re.MULTILINE)
    }
    assert not missing


_HAZARD = re.compile(r"^\| (\d+) (?:\||[^|`]+\|)(.*)$", re.MULTILINE)


def test_every_hazard_of_controller_mode_has_a_test() -> None:
    chapter = (SPEC / "controller.md").read_text().split("\n## 14. ")[1].split("\n## ")[0]
    hazards = {number for number, _ in _HAZARD.findall(chapter)}
    assert len(hazards) == 32
    table = (
        (REPO / "docs" / "controller-tested.md").read_text().split("\n## Each hazard has a test")[1]
    )
    proven = {number for number, tests in _HAZARD.findall(table) if _TEST.search(tests)}
    assert proven == hazards


_PLACE = re.compile(r"`((?:rmq_ha|tests|bench|conf|examples)/[\w/.-]*)`")


def test_every_file_that_a_document_names_is_there() -> None:
    named = {(path.name, place) for path in PAGES for place in _PLACE.findall(path.read_text())}
    assert len(named) > 100
    # What `bench/` writes is not in the repository.
    there = {place for _, place in named if (REPO / place).exists() or "/results/" in place}
    assert not {(name, place) for name, place in named if place not in there}


_SECTION = re.compile(r"""([\w/-]+)\.md`?\)?, "([^"`]+?)[."]""")
_SPLIT_STRING = re.compile(r"""["']\s*\n\s*f?["']""")


def test_every_section_that_a_text_names_is_there() -> None:
    """`docs/failover.md, "What may be lost"`, in code and as a link in a page."""
    pages = {path.stem: path.read_text() for path in DOCUMENTS}
    sources = [*(REPO / "rmq_ha").rglob("*.py"), *PAGES]
    named = {
        (path.name, place.rpartition("/")[2], heading)
        for path in sources
        for place, heading in _SECTION.findall(_SPLIT_STRING.sub("", path.read_text()))
        if place.rpartition("/")[2] in pages
    }
    assert len(named) > 20
    missing = {
        item for item in named if not re.search(rf"^#+ {re.escape(item[2])}", pages[item[1]], re.M)
    }
    assert not missing


@pytest.mark.parametrize("folder", ["rmq_ha", "twisted", "tests", "bench", "examples", "spark"])
def test_every_pointer_into_a_specification_resolves(folder: str) -> None:
    found = {
        str(path.relative_to(REPO)): missing
        for path in sorted((REPO / folder).rglob("*.py"))
        if path != Path(__file__) and (missing := list(dangling(path.read_text())))
    }
    assert not found


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ('"""Spec: store.md, sections 2.1 to 2.4, 3.1 and 12; ha.md, chapter 3."""', []),
        ('"""Spec: store.md.\n\nMore of 99.1."""', []),
        ('"""Spec: remoting.md, section 1.2 and\nchapter 99."""', ["remoting.md, 99"]),
        ('"""Spec: nowhere.md, section 1."""', ["nowhere.md"]),
        ('"""Spec: section 7.3."""', ["section 7.3."]),
    ],
)
def test_a_pointer_that_leads_nowhere_is_found(source: str, missing: list[str]) -> None:
    """A check that never fails is none."""
    assert list(dangling(source)) == missing
