"""Expressions and messages for the comparison of SQL92 filters; the same for the same seed."""

from __future__ import annotations

from random import Random

NAMES = ["a", "b", "c", "_d", "$e", "TAGS", "missing", "price", "região"]
VALUES = [
    "1", "5", "-5", "007", "+3", "0", "2147483647", "2147483648", "-2147483648", "3000000000",
    "9223372036854775807", "9223372036854775808", "1.5", "-1.5", "1.", ".5", "1e3", "1E-2", "0.0",
    "-0.0", "NaN", "-NaN", "Infinity", "-Infinity", "5d", "5f", "5L", "0x10", "0x1p4", "0x.8p1",
    "1e400", "1e-400", " 5", "5 ", "1_0", "\u0663", "\uff15", "x", "X", "it's", "TRUE", "true",
    "True", "false", "中文", "\U0001f600", "A", "B", "red", "5.0", "00000000000000000000005",
    "--5", "+", "e5", "1e", "1e5.5", "0x", "nan", "inf",
]  # fmt: skip
NUMBERS = [
    "0", "1", "5", "10", "2147483647", "2147483648", "3000000000", "5L", "5l", "1.5", "1.", ".5",
    "1e3", "1E-2", "15e-1", "9223372036854775807", "1.7976931348623157e308", "4.9e-324", "5.0",
]  # fmt: skip
ODD_NUMBERS = [
    "0.0", "1e400", "9223372036854775808", "012", "0x1F", "0L", "1e-400", "00", "1..2", "1.e5",
]  # fmt: skip
STRINGS = ["''", "'x'", "'X'", "'it''s'", "'5'", "'1.5'", "'true'", "'中文'", "'a\nb'", "'A'"]
SPACES = [" ", " ", " ", "  ", "\t", "\n", "\r\n", "/* c */", " /***/ ", " -- c\n", "\f"]
JUNK = [
    ";", "'", "?", "!=", "#", "\u00a0", "like", "contains", "a", ")", "(", "1", "'x'", "--", "/*",
    ",", "NOT", "AND", "=", "@", "é", "\x00", "%", "IS", "NULL", "+", "-", "BETWEEN", ". ",
]  # fmt: skip


def messages(random: Random, count: int) -> list[dict[str, str]]:
    """Properties of some messages; the first has none."""
    made: list[dict[str, str]] = [{}]
    names = [*NAMES[:-3], "price"]
    for index in range(1, count):
        value = VALUES[index % len(VALUES)]
        properties = {"a": value} if index % 3 else {}
        for name in names:
            if random.random() < 0.45:
                properties.setdefault(name, random.choice(VALUES))
        made.append(properties)
    return made


class Generator:
    """Draws expressions: most are of the grammar, not all of those compile."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def expression(self) -> str:
        """One."""
        random = self._random
        text = self._selector(random.choice((0, 1, 1, 2, 2, 3)))
        if random.random() < 0.15:
            words = text.split(" ")
            words.insert(random.randrange(len(words) + 1), random.choice(JUNK))
            text = " ".join(words)
        if random.random() < 0.05:
            cut = random.randrange(len(text) + 1)
            text = text[:cut] + text[cut + random.randint(1, 5) :]
        if random.random() < 0.15 and "'" not in text:
            text = "".join([random.choice(SPACES) if c == " " else c for c in text])
        if random.random() < 0.2:
            text = self._mix_case(text)
        return text

    def _mix_case(self, text: str) -> str:
        pieces = text.split("'")
        for index in range(0, len(pieces), 2):
            for word in ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"):
                if self._random.random() < 0.5:
                    pieces[index] = pieces[index].replace(f"{word} ", f"{word.lower()} ")
        return "'".join(pieces)

    def _selector(self, depth: int) -> str:
        random = self._random
        if depth == 0 or random.random() < 0.3:
            return self._test(depth)
        kind = random.random()
        if kind < 0.4:
            return f"{self._selector(depth - 1)} AND {self._selector(depth - 1)}"
        if kind < 0.75:
            return f"{self._selector(depth - 1)} OR {self._selector(depth - 1)}"
        if kind < 0.85:
            return f"NOT ({self._selector(depth - 1)})"
        if kind < 0.93:
            return (
                f"({self._selector(depth - 1)}) {random.choice(('=', '<>'))} {self._value(depth)}"
            )
        return f"({self._selector(depth - 1)}) IS {random.choice(('', 'NOT '))}NULL"

    def _test(self, depth: int) -> str:
        random = self._random
        kind = random.random()
        name = random.choice(NAMES[:-1])
        is_not = random.choice(("", "", "NOT "))
        if kind < 0.3:
            sign = random.choice(
                ("=", "<>", "=", "<>", "=", "!=" if random.random() < 0.1 else "<>")
            )
            left = name if random.random() < 0.8 else self._value(depth)
            return f"{left} {sign} {self._value(depth)}"
        if kind < 0.55:
            sign = random.choice(("<", "<=", ">", ">="))
            left = name if random.random() < 0.85 else self._number()
            right = self._number() if random.random() < 0.75 else self._value(depth)
            return f"{left} {sign} {right}"
        if kind < 0.67:
            return f"{name} {is_not}BETWEEN {self._number()} AND {self._number()}"
        if kind < 0.8:
            values = ", ".join(random.choice(STRINGS) for _ in range(random.randint(1, 7)))
            return f"{name} {is_not}IN ({values})"
        if kind < 0.9:
            return f"{name} IS {is_not}NULL"
        if kind < 0.95:
            return random.choice((name, "TRUE", "FALSE", "NULL", f"NOT {name}", f"({name})"))
        return f"{is_not}{self._value(depth)}"

    def _number(self) -> str:
        random = self._random
        number = random.choice(NUMBERS if random.random() < 0.97 else ODD_NUMBERS)
        return (
            random.choice(("", "", "", "-", "- ", "+", "--" if random.random() < 0.2 else ""))
            + number
        )

    def _value(self, depth: int) -> str:
        random = self._random
        kind = random.random()
        if kind < 0.35:
            return self._number()
        if kind < 0.65:
            return random.choice(STRINGS)
        if kind < 0.8:
            return random.choice(NAMES[:-1])
        if kind < 0.9:
            return random.choice(("TRUE", "FALSE", "NULL", "-a", "+b", "- TRUE", "-'5'"))
        return f"({self._selector(max(0, depth - 1))})"
