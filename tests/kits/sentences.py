"""
Measures the sentences of a page.

    python -m tests.kits.sentences docs/*.md

prints a row for each page and lists each sentence of more than 40 words with its line. The exit
code is 1 if a page breaks the rule: 25 words a sentence on average, and 40 at most.

Code blocks, headings and pictures have no sentences. A cell of a table may be a few words, so a
cell counts for the longest sentence and not for the average. Code in backticks is one word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

AVERAGE_LIMIT = 25
LENGTH_LIMIT = 40
_SHORTEST = 3
"""The least number of words of a sentence; fewer words are a label, such as `**Note.**`."""
_CODE = "code"
_END = re.compile(r"(?<=[.!?])[)\"'\u201d]*\s+")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|vs|cf|No)\.[)\"']*$")
_PARSER = MarkdownIt().enable("table")


@dataclass(frozen=True)
class Sentence:
    """
    One sentence of a page.

    :ivar line: the line of the page on which it begins, from 1.
    :ivar in_table: whether it stands in a cell of a table.
    """

    line: int
    text: str
    in_table: bool

    @property
    def words(self) -> int:
        """Return the number of words; 0 for a list of code, which is not a sentence."""
        found = [word for word in self.text.split() if re.search(r"\w", word)]
        return 0 if {word.strip(",;.") for word in found} == {_CODE} else len(found)


@dataclass(frozen=True)
class Lengths:
    """
    The figures of one page.

    :ivar count: number of sentences outside tables; `average` is the average of their words.
    :ivar longest: words of the longest sentence, cells of tables included.
    :ivar too_long: the sentences of more than `LENGTH_LIMIT` words.
    """

    count: int
    average: float
    longest: int
    too_long: list[Sentence]

    @property
    def faults(self) -> list[str]:
        """Return each breach of the rule as one line of text."""
        found = [f"line {s.line}: {s.words} words: {s.text}" for s in self.too_long]
        if self.average > AVERAGE_LIMIT:
            found.append(f"{self.average:.1f} words a sentence, and {AVERAGE_LIMIT} are the limit")
        return found


def sentences(page: str) -> Iterator[Sentence]:
    """Yield all sentences of a Markdown text in their order, including those in tables."""
    tokens = _PARSER.parse(page)
    for position, token in enumerate(tokens):
        opener = tokens[position - 1].type if position else ""
        if token.type != "inline" or opener == "heading_open" or token.map is None:
            continue
        in_table = opener in ("td_open", "th_open")
        yield from _of_block(_plain(token), token.map[0] + 1, in_table)


def lengths(page: str) -> Lengths:
    """Return the figures of a Markdown text."""
    found = [sentence for sentence in sentences(page) if sentence.words >= _SHORTEST]
    counts = [sentence.words for sentence in found if not sentence.in_table]
    return Lengths(
        count=len(counts),
        average=sum(counts) / max(len(counts), 1),
        longest=max((sentence.words for sentence in found), default=0),
        too_long=[sentence for sentence in found if sentence.words > LENGTH_LIMIT],
    )


def _plain(inline: Token) -> str:
    """Return the words that a reader sees; lines end where they end in the file."""
    parts = []
    for child in inline.children or ():
        if child.type == "text":
            parts.append(child.content)
        elif child.type == "code_inline":
            parts.append(_CODE)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
    return "".join(parts)


def _of_block(text: str, line: int, in_table: bool) -> Iterator[Sentence]:
    begin = 0
    for end in [*_END.finditer(text), None]:
        upto = end.end() if end else len(text)
        piece = text[begin:upto]
        if end and _ABBREVIATION.search(piece.rstrip()):
            continue
        if piece.strip():
            skipped = len(piece) - len(piece.lstrip())
            first = line + text.count("\n", 0, begin + skipped)
            yield Sentence(first, " ".join(piece.split()), in_table)
        begin = upto


def main(names: list[str]) -> int:
    """
    Print the figures and the long sentences of some pages, and return the exit code, 1 for a fault.
    """
    found = {name: lengths(Path(name).read_text()) for name in names}
    print(f"{'page':<40} sentences  average  longest  above {LENGTH_LIMIT}")
    for name, page in found.items():
        row = f"{page.count:>9}  {page.average:>7.1f}  {page.longest:>7}  {len(page.too_long):>8}"
        print(f"{name:<40} {row}")
    for name, page in found.items():
        for sentence in page.too_long:
            print(f"\n{name}:{sentence.line}: {sentence.words} words\n    {sentence.text}")
    return int(any(page.faults for page in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
