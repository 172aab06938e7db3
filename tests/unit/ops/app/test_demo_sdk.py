"""`rmqha-demo --sdk`: what it says without the SDK, and how it reads the lines of the SDK."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmq_ha.ops.app.demo import main
from rmq_ha.ops.app.demo_sdk import ProgramLines, missing_sdk

HAS_SDK = find_spec("rocketmq") is not None and find_spec("rocketmq.grpc_protocol") is not None


@pytest.mark.skipif(HAS_SDK, reason="the SDK is installed here")
def test_without_the_sdk_the_demo_says_so_and_starts_nothing() -> None:
    done = CliRunner().invoke(main, ["--sdk"])
    assert done.exit_code == 1
    assert "pip install rocketmq-python-client" in done.output
    assert "pip install rocketmq-python-client" in missing_sdk()


def test_a_group_that_elects_for_itself_has_no_sdk() -> None:
    assert CliRunner().invoke(main, ["--sdk", "--dledger"]).exit_code == 2


def test_lines_are_read_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "sending.log"
    path.write_text("sent 1\nsen")
    lines = ProgramLines(path)
    assert lines.news() == [("sent", "1")]
    assert lines.news() == []
    path.write_text("sent 1\nsent 2\nfailed AioRpcError\nend\n")
    assert lines.news() == [("sent", "2"), ("failed", "AioRpcError"), ("end", "")]
