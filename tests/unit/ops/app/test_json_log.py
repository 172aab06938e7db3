"""Log lines as JSON: what they hold, what they hide, and that nothing can break them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from rmq_ha.base.config.log_format import LogFormat
from rmq_ha.ops.app.log import MOST_TEXT, JsonObserver, LogStyle, json_line, server_observer


def logged(constants: dict[str, Any] | None = None, **event: Any) -> dict[str, Any]:
    out = io.StringIO()
    log = Logger("rmq_ha.test", observer=JsonObserver(out, constants or {}))
    log.info(event.pop("log_format", "x"), **event)
    (line,) = out.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_has_the_message_the_fields_and_what_the_server_is() -> None:
    found = logged(
        {"broker": "broker-a", "role": "SLAVE"},
        log_format="slave {peer} is {lag} bytes behind",
        peer="10.0.0.1:5",
        lag=17,
    )
    assert found["message"] == "slave 10.0.0.1:5 is 17 bytes behind"
    assert found["fields"] == {"peer": "10.0.0.1:5", "lag": 17}
    assert found["level"] == "info"
    assert found["namespace"] == "rmq_ha.test"
    assert (found["broker"], found["role"]) == ("broker-a", "SLAVE")
    assert found["time"].endswith("+00:00")


def test_a_failure_brings_its_traceback() -> None:
    out = io.StringIO()
    log = Logger("rmq_ha.test", observer=JsonObserver(out, {}))
    try:
        raise ZeroDivisionError("oops")
    except ZeroDivisionError:
        log.failure("cannot {what}", Failure(), what="divide")  # type: ignore[no-untyped-call]
    found = json.loads(out.getvalue())
    assert found["level"] == "critical"
    assert found["message"] == "cannot divide"
    assert "ZeroDivisionError: oops" in found["traceback"]
    assert "log_failure" not in found["fields"]


def test_a_long_text_is_cut_where_it_is_said() -> None:
    found = logged(whole="x" * MOST_TEXT, cut="x" * (MOST_TEXT + 1))
    assert found["fields"] == {"whole": "x" * MOST_TEXT, "cut": "x" * MOST_TEXT + "..."}


@pytest.mark.parametrize("name", ["password", "keyPassword", "aclSecretKey", "signature"])
def test_a_field_that_tells_of_a_secret_is_hidden(name: str) -> None:
    found = logged(**{name: "hunter2"}, changes={name: "hunter2", "b": [1]})
    assert found["fields"] == {name: "***", "changes": {name: "***", "b": [1]}}


def test_three_floors_are_structure_and_what_lies_deeper_is_text() -> None:
    found = logged(maps={"a": {"b": {"c": {"d": 1}}}}, lists=[[[[1]]]])
    assert found["fields"] == {"maps": {"a": {"b": {"c": "{'d': 1}"}}}, "lists": [[["[1]"]]]}


def test_what_json_does_not_have_becomes_text() -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError("no")

    found = logged(a=b"\xff", b=float("nan"), c=Broken(), d=ValueError("why"), e={1, 2}, f=None)
    fields = found["fields"]
    assert fields["a"] == "�"
    assert fields["b"] == "nan"
    assert "Broken object" in fields["c"]
    assert fields["d"] == "why"
    assert sorted(fields["e"]) == [1, 2]
    assert fields["f"] is None


def test_a_line_is_bounded() -> None:
    found = logged(log_format="{a}", a="x" * 10**6, b=["y" * 10**5] * 10**4)
    assert len(json.dumps(found)) < 10**6


@given(st.dictionaries(st.text(max_size=20), st.text() | st.binary() | st.integers() | st.floats()))
def test_any_event_is_one_line(event: dict[str, Any]) -> None:
    line = json_line({**event, "log_level": LogLevel.info, "log_time": 1.0}, {"server": "rmqha"})
    assert "\n" not in line
    assert json.loads(line)["server"] == "rmqha"


def test_what_the_output_cannot_encode_costs_no_line() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    Logger("rmq_ha.test", observer=JsonObserver(out, {})).info("{text}", text="\udc80 \u4e2d")
    out.seek(0)
    assert json.loads(out.read())["message"] == "\udc80 \u4e2d"


def test_json_goes_to_standard_output_or_the_log_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    style = LogStyle(LogFormat.json, {"server": "rmqha"})
    observer = server_observer({"nodaemon": True}, style)
    assert observer is not None
    observer({"log_format": "hello", "log_level": LogLevel.info})
    assert json.loads(capsys.readouterr().out)["message"] == "hello"
    path = tmp_path / "broker.log"
    observer = server_observer({"nodaemon": True, "logfile": str(path)}, style)
    assert observer is not None
    observer({"log_format": "hello", "log_level": LogLevel.info})
    assert json.loads(path.read_text())["server"] == "rmqha"
    assert server_observer({"nodaemon": True, "syslog": True}, style) is None
