"""Each page keeps its sentences short, and the measure of them is right."""

import re
from pathlib import Path

import pytest

from tests.kits.pages import PAGES, REPO
from tests.kits.sentences import Sentence, lengths, sentences

_ISSUE = re.compile(r"\bissues? #?\d{1,2}\b|\(#\d+\)", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_a_page_has_short_sentences(page: Path) -> None:
    assert lengths(page.read_text()).faults == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_no_page_names_an_issue_of_this_project(page: Path) -> None:
    """A reader cannot open it. Those of other projects have more than two digits."""
    assert _ISSUE.findall(page.read_text()) == []


def test_the_readme_is_short() -> None:
    assert len((REPO / "README.md").read_text().splitlines()) <= 90


def test_a_page_is_cut_into_sentences_with_their_lines() -> None:
    page = (
        "# A heading has no sentence. None.\n"
        "\n"
        "It sends, e.g. to `a.b`. Then a `code block`\n"
        "follows (see [a page](x.md)). Version 4.9 is older.\n"
        "\n"
        "    indented code. It is skipped.\n"
        "\n"
        "- An item ends\n"
        "\n"
        "```sh\nalso code\n```\n"
        "\n"
        "| a cell |\n|---|\n| counts apart. Twice here |\n"
    )
    assert list(sentences(page)) == [
        Sentence(3, "It sends, e.g. to code.", False),
        Sentence(3, "Then a code follows (see a page).", False),
        Sentence(4, "Version 4.9 is older.", False),
        Sentence(8, "An item ends", False),
        Sentence(14, "a cell", True),
        Sentence(16, "counts apart.", True),
        Sentence(16, "Twice here", True),
    ]
    assert lengths(page).count == 4
    assert lengths(page).average == (5 + 7 + 4 + 3) / 4


def test_what_breaks_the_rule_is_named() -> None:
    """By a sentence of 41 words, also in a table, and by an average above 25."""
    long = " ".join(["word"] * 41)
    assert lengths(f"Short it is.\n\n{long}.").faults[0].startswith("line 3: 41 words: word word")
    assert lengths(f"| cell |\n|---|\n| {long} |\n").faults[0].startswith("line 3: 41 words")
    assert lengths(" ".join(["word"] * 26)).faults == [
        "26.0 words a sentence, and 25 are the limit"
    ]
    assert lengths(" ".join(["word"] * 25)).faults == []
