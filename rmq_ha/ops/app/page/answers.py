"""Answers questions below /api: the list of questions, their arguments, and a cache of answers."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from twisted.internet.defer import Deferred

from rmq_ha.ops.app.page.board import SPANS, Board
from rmq_ha.ops.app.page.broker import BrokerBoard
from rmq_ha.ops.app.page.listing import MOST_ROWS
from rmq_ha.ops.app.page.measures import GROUP
from rmq_ha.ops.app.page.search import Query
from rmq_ha.ops.app.page.tail import MOST_CURSOR, TailQuery

KEPT_S = 1.0
MOST_KEPT = 64
MOST_TEXT = 512
_MOST_NUMBER = (1 << 63) - 1

Arguments = Mapping[str, str]
Question = Callable[[Arguments, str], Any]


class BadQuestion(Exception):
    """The question is wrong; the text says why."""


class NotThere(Exception):
    """The thing that was asked for does not exist; the text names it."""


class Answers:
    """
    Answers the questions of all pages of one server.

    The answers of overview, history and events are kept for a second, for all pages that ask the
    same question.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self._kept: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._cheap: dict[str, Question] = {
            "overview": lambda arguments, host: board.overview(),
            "history": self._history,
            "events": lambda arguments, host: board.event_page(_number(arguments, "since", 0)),
        }
        self._dear: dict[str, Question] = {}
        if isinstance(board, BrokerBoard):
            self._dear = {
                "topics": lambda arguments, host: board.topics(
                    host,
                    _text(arguments, "text"),
                    _text(arguments, "kind"),
                    _text(arguments, "sort"),
                    _number(arguments, "limit", 100, MOST_ROWS),
                ),
                "groups": lambda arguments, host: board.groups(
                    host,
                    _text(arguments, "text"),
                    _text(arguments, "sort"),
                    _number(arguments, "limit", 100, MOST_ROWS),
                ),
                "clients": lambda arguments, host: board.clients(
                    host, _text(arguments, "text"), _number(arguments, "limit", 200, MOST_ROWS)
                ),
                "topic": lambda arguments, host: board.topic_sheet(
                    host, _required_text(arguments, "name")
                ).addCallback(_checked_sheet, "topic", arguments),
                "group": lambda arguments, host: board.group_sheet(
                    host, _required_text(arguments, "name")
                ).addCallback(_checked_sheet, "group", arguments),
                "search": lambda arguments, host: board.searches.run(host, _read_query(arguments)),
                "tail": lambda arguments, host: board.tails.read(host, _read_tail(arguments)),
                "life": lambda arguments, host: board.lives.tell(
                    host, _required_text(arguments, "place")
                ).addCallback(_checked_life),
                "waiting": lambda arguments, host: board.waiting.look(host),
            }

    def answer(self, path: str, arguments: Arguments, host: str) -> "bytes | Deferred[bytes]":
        """
        Return the answer as JSON, now or later.

        :param path: the path below /api.
        :param host: address of the client.
        :raises BadQuestion: the question cannot be answered for any client.
        :raises NotThere: this server does not know such a question.
        """
        cheap = self._cheap.get(path)
        if cheap is not None:
            return self._kept_answer(cheap, path, arguments, host)
        dear = self._dear.get(path)
        if dear is None:
            raise NotThere(f"a {self.board.kind} has no /api/{path[:40]}")
        later: Deferred[Any] = dear(arguments, host)
        return later.addCallback(encoded)

    def _kept_answer(self, question: Question, path: str, arguments: Arguments, host: str) -> bytes:
        key, now = (path, repr(sorted(arguments.items()))), self.board.host.clock.seconds()
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < KEPT_S:
            return kept[1]
        data = encoded(question(arguments, host))
        for known, (at, _) in list(self._kept.items()):
            if now - at >= KEPT_S or len(self._kept) >= MOST_KEPT:
                del self._kept[known]
        self._kept[key] = now, data
        return data

    def _history(self, arguments: Arguments, host: str) -> Any:
        prefix = {"": "", "groups": GROUP}.get(_text(arguments, "of"))
        if prefix is None:
            raise BadQuestion("of: groups, or nothing")
        span = _text(arguments, "span") or "1h"
        if span not in SPANS:
            raise BadQuestion(f"span: {', '.join(SPANS)}")
        return self.board.history(span, _number(arguments, "since", 0), prefix)


def encoded(value: msgspec.Struct) -> bytes:
    """
    Return a value as JSON. Texts that UTF-8 cannot encode are escaped: the name of a peer may have
    half of a surrogate pair.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def _checked_sheet(sheet: Any, what: str, arguments: Arguments) -> Any:
    if sheet is None:
        raise NotThere(f"there is no {what} {arguments['name'][:MOST_TEXT]!r} on this broker")
    return sheet


def _checked_life(life: Any) -> Any:
    if life is None:
        raise NotThere("there is no message at this place of the commit log any more")
    return life


def _read_tail(arguments: Arguments) -> TailQuery:
    return TailQuery(
        _required_text(arguments, "topic"),
        _text(arguments, "cursor", MOST_CURSOR),
        _text(arguments, "tag"),
        _text(arguments, "key"),
        _text(arguments, "text"),
    )


def _read_query(arguments: Arguments) -> Query:
    by = _text(arguments, "by")
    if by not in ("id", "key", "time"):
        raise BadQuestion("by: id, key or time")
    return Query(
        by,
        _text(arguments, "topic"),
        _text(arguments, "value"),
        _number(arguments, "from", 0),
        _number(arguments, "to", _MOST_NUMBER),
    )


def _text(arguments: Arguments, name: str, most: int = MOST_TEXT) -> str:
    text = arguments.get(name, "")
    if len(text) > most:
        raise BadQuestion(f"{name}: at most {most} characters")
    return text


def _required_text(arguments: Arguments, name: str) -> str:
    text = _text(arguments, name)
    if not text:
        raise BadQuestion(f"{name} is missing")
    return text


def _number(arguments: Arguments, name: str, default: int, most: int = _MOST_NUMBER) -> int:
    text = arguments.get(name, "")
    if not text:
        return min(default, most)
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadQuestion(f"{name}: a whole number, not below 0")
    return min(int(text), most)
