"""README.md's client runs as it stands, against a broker in here."""

import asyncio
import re
from pathlib import Path

import pytest

from rmq_ha.client import SendResult
from tests.unit.client.whole_broker import Bench

TEXT = (Path(__file__).parents[3] / "README.md").read_text()
LIMIT_S = 20.0


class Printed(Exception):
    """The program has printed the body, and would now wait for further messages."""


def test_the_client_of_the_readme_sends_and_consumes(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop", reason="pip install 'rmq-ha[test]'")
    (program,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    program, _, start = program.rpartition("\nasyncio.run(")
    assert start == "main())\n"
    bench = Bench(tmp_path)
    printed: list[object] = []

    def show(value: object) -> None:
        printed.append(value)
        if len(printed) == 2:
            raise Printed

    names: dict[str, object] = {"print": show}
    exec(program.replace("127.0.0.1:9876", bench.namesrv_addr), names)
    main = names["main"]
    assert callable(main)
    try:
        with (
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            pytest.raises(Printed),
        ):
            runner.run(asyncio.wait_for(main(), LIMIT_S))
    finally:
        bench.close()
    sent, body = printed
    assert isinstance(sent, SendResult)
    assert body == b"4711"
