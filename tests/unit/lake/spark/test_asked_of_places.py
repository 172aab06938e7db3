"""What jobs ask of places, and what their commands refuse: without any session."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import types as T

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.client.rules.settings import ClientConfig, Credentials
from rmq_ha.lake.spark.audit.stored_rows import (
    AuditRequest,
    client_options,
    label_of,
    options_of_topics,
    source_options,
)
from rmq_ha.lake.spark.host.telling import InSentences
from rmq_ha.lake.spark.offsets import command
from rmq_ha.lake.spark.offsets.command import _directory, verify_offsets
from rmq_ha.lake.spark.source.option_values import names_of, own_names
from rmq_ha.lake.spark.source.options import SourceOptions, parse_options
from rmq_ha.lake.spark.source.reading import Subscription
from rmq_ha.lake.spark.source.schema import MESSAGE_COLUMNS, check_schema
from rmq_ha.lake.spark.source.streaming import UnusableReader, make_stream_reader
from rmq_ha.lake.spark.source.tables_rows import rows_of
from rmq_ha.ops.offsets import opening
from rmq_ha.ops.offsets.places import Place, parse_place

STORES = [parse_place("/a"), parse_place("/b")]
LIVE = parse_place("namesrv://n:1/b")


@pytest.mark.parametrize(
    ("low", "high", "stored"),
    [(None, None, (None, None)), (50, None, (40, None)), (None, 50, (None, 60)), (0, 9, (-10, 19))],
)
def test_what_is_sent_at_an_edge_is_stored_a_little_behind_it(
    low: int | None, high: int | None, stored: tuple[int | None, int | None]
) -> None:
    asked = AuditRequest(places=STORES, from_ms=low, to_ms=high, grace_ms=10)
    assert asked.stored_ms == stored


@pytest.mark.parametrize(
    ("place", "topics", "options"),
    [
        (
            STORES[0],
            ["t", "u"],
            {"path": "/a", "scan": "files", "failOnDataLoss": "false", "subscribe": "t,u"},
        ),
        (STORES[0], [], {"path": "/a", "scan": "files", "failOnDataLoss": "false"}),
        (LIVE, ["t"], {"namesrv": "n:1", "brokerName": "b", "subscribe": "t"}),
        (LIVE, [], {"namesrv": "n:1", "brokerName": "b", "subscribePattern": ".*"}),
    ],
)
def test_a_place_is_read_as_what_it_is(
    place: Place, topics: Sequence[str], options: Mapping[str, str]
) -> None:
    assert source_options(place, topics) == options


def test_messages_are_not_read_from_snapshots() -> None:
    with pytest.raises(WrongUsage, match="messages are read from a store directory or through"):
        source_options(parse_place("snapshot:/x"), ["t"])


def test_only_of_several_stores_rows_say_which_one_they_are_of() -> None:
    assert [label_of(place, [*STORES, LIVE]) for place in (*STORES, LIVE)] == ["/a", "/b", ""]
    assert label_of(STORES[0], STORES[:1]) == ""
    asked = AuditRequest(places=[*STORES, LIVE], options={"maxBytesPerPartition": "1m"})
    found = list(options_of_topics(asked, ["A.B", "C"]))
    assert [one.get("brokerName") for one in found] == ["/a", "/b", "b"]
    assert {one["subscribePattern"] for one in found} == {r"A\.B|C"}
    assert {one["maxBytesPerPartition"] for one in found} == {"1m"}
    (alone,) = options_of_topics(AuditRequest(places=STORES[:1]), [])
    assert alone["subscribePattern"] == ".*"
    assert "brokerName" not in alone


@pytest.mark.parametrize(
    ("client", "options"),
    [
        (ClientConfig(), {}),
        (ClientConfig(use_tls=True), {"useTLS": "true"}),
        (
            ClientConfig(tls={"tls.client.trustCertPath": "/ca"}),
            {"tls.client.trustCertPath": "/ca"},
        ),
        (
            ClientConfig(credentials=Credentials("me", "secret")),
            {"accessKey": "me", "secretKey": "secret"},
        ),
        (
            ClientConfig(credentials=Credentials("me", "secret", "token")),
            {"accessKey": "me", "secretKey": "secret", "securityToken": "token"},
        ),
    ],
)
def test_an_account_goes_to_who_asks_a_broker_and_to_nobody_else(
    client: ClientConfig, options: Mapping[str, str]
) -> None:
    assert client_options([STORES[0], LIVE], client) == options
    assert client_options(STORES, client) == {}


# Commands


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--master", "/m"],
        ["--slave", "/s"],
        ["--master", "/m", "--slave", "/s", "--cluster", "namesrv://n:1"],
        ["--slave", "/s", "--cluster", "namesrv://n:1"],
        ["--pairs", "PAIRS", "--cluster", "namesrv://n:1"],
        ["--master", "/m", "--slave", "/s", "--pairs", "PAIRS"],
    ],
)
def test_one_pair_or_many_in_one_of_two_ways(given: list[str], tmp_path: Any) -> None:
    pairs = tmp_path / "pairs"
    pairs.write_text("/m /s\n")
    line = [str(pairs) if each == "PAIRS" else each for each in given]
    done = CliRunner().invoke(verify_offsets, line)
    assert done.exit_code == 2
    assert "give --master and --slave, or --pairs, or --cluster" in done.output


@pytest.mark.parametrize("many", [["--cluster", "namesrv://n:1"], ["--pairs", "PAIRS"]])
def test_a_plan_is_for_one_pair(many: list[str], tmp_path: Any) -> None:
    pairs = tmp_path / "pairs"
    pairs.write_text("/m /s\n")
    line = [str(pairs) if each == "PAIRS" else each for each in many]
    done = CliRunner().invoke(verify_offsets, [*line, "--repair", str(tmp_path / "plan")])
    assert done.exit_code == 2
    assert "--repair is for one pair" in done.output


def test_a_history_is_a_directory_of_snapshots() -> None:
    assert _directory(None) is None
    assert _directory("snapshot:/past") == "/past"
    with pytest.raises(WrongUsage, match="write snapshot:DIR"):
        _directory("/past")


# Workers


def reader() -> Any:
    """Of a class that is made here and now."""

    class Reader(InSentences):
        def reads(self, kind: type[Exception] | None) -> str:
            if kind is not None:
                raise kind("why")
            return "all"

        def walks(self, kind: type[Exception] | None) -> Any:
            yield 1
            if kind is not None:
                raise kind("why")
            yield 2

        def _own(self) -> None:
            raise WrongUsage("why")

    return Reader()


@pytest.mark.parametrize(
    ("kind", "in_worker", "is_hidden"),
    [
        (WrongUsage, True, True),
        (CannotDecide, True, True),
        (WrongUsage, False, False),
        (KeyError, True, False),
    ],
)
def test_spark_shows_the_sentence_of_an_error_of_ours_and_the_trace_of_others(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], in_worker: bool, is_hidden: bool
) -> None:
    import os

    if in_worker:
        monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "1")
    for call in (lambda: reader().reads(kind), lambda: list(reader().walks(kind))):
        monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
        with pytest.raises(kind, match="why"):
            call()
        assert os.environ["SPARK_HIDE_TRACEBACK"] == "1" * is_hidden
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    with pytest.raises(WrongUsage):
        reader()._own()
    assert os.environ["SPARK_HIDE_TRACEBACK"] == ""
    assert (reader().reads(None), list(reader().walks(None))) == ("all", [1, 2])


def test_the_options_of_a_struct_are_its_own_and_those_that_it_inherits() -> None:
    base = SourceOptions.__mro__[1]
    assert names_of(SourceOptions) == (*names_of(base), *own_names(SourceOptions))
    assert own_names(SourceOptions)


@pytest.mark.parametrize("name", ["topics", "groups", "consumerOffsets", "delayOffsets"])
def test_a_table_that_is_damaged_decides_nothing(name: str) -> None:
    """Nor has it no rows: the place is named."""
    with pytest.raises(CannotDecide, match="the file x is damaged"):
        rows_of(name, b"{", "b", Subscription(), "the file x")


@pytest.mark.parametrize(
    ("key", "value", "fits"),
    [
        (T.StringType(), T.StringType(), True),
        (T.StringType(), T.BinaryType(), False),
        (T.BinaryType(), T.StringType(), False),
    ],
)
def test_a_map_is_the_same_whether_its_values_may_be_null_or_not(
    key: T.DataType, value: T.DataType, fits: bool
) -> None:
    """As Spark's own schemas of what was read differ in that."""
    known = MESSAGE_COLUMNS["properties"]
    assert known == T.MapType(T.StringType(), T.StringType())
    for may_be_null in (True, False):
        asked = T.StructType([T.StructField("properties", T.MapType(key, value, may_be_null))])
        if fits:
            assert check_schema(asked, MESSAGE_COLUMNS) == ["properties"]
        else:
            with pytest.raises(WrongUsage, match="column properties is map<string,string>"):
                check_schema(asked, MESSAGE_COLUMNS)


def test_what_is_wrong_with_a_stream_is_said_when_it_is_used() -> None:
    """What is raised where a reader is made, pyspark loses."""
    refused = make_stream_reader({"subscribe": "t"}, T.StructType())
    assert isinstance(refused, UnusableReader)
    for ask in (refused.initialOffset, refused.latestOffset, refused.partitions, refused.read):
        with pytest.raises(WrongUsage, match="namesrv"):
            ask(None, None)  # type: ignore[call-arg]


def test_a_stream_has_no_end() -> None:
    given = {"subscribe": "t", "namesrv": "127.0.0.1:1", "endingOffsets": "latest"}
    refused = make_stream_reader(given, T.StructType())
    with pytest.raises(WrongUsage, match="a stream does not end"):
        refused.initialOffset()


# What the command does with them


class Asking:
    """A job, and what it is asked to do."""

    client = "client"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[Any] = []
        self.answer: Any = None
        monkeypatch.setattr(command, "run_job", self.run)
        for name in ("_verify_one_pair", "_verify_many_pairs"):
            monkeypatch.setattr(command, name, partial(self.asked, name))
        monkeypatch.setattr(opening, "pairs_of_cluster", lambda *given: given)

    def run(self, name: str, inputs: Mapping[str, str], body: Any) -> None:
        self.told.append((name, inputs))
        self.answer = body(self)

    def asked(self, name: str, job: Any, pairs: Any, limits: Any, past: Any, record: bool) -> Any:
        assert job is self
        return name, pairs, past, record

    def does(self, *line: str) -> Any:
        done = CliRunner().invoke(verify_offsets, line, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return self.answer


def test_one_pair_a_list_of_them_or_all_of_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    asking = Asking(monkeypatch)
    pair = ("--master", "/m", "--slave", "/s", "--slave", "/s2")
    assert asking.does(*pair) == ("_verify_one_pair", ["/m", "/s", "/s2"], None, False)
    assert asking.told[-1] == ("verify-offsets", {"master": "/m", "slave": "/s /s2"})
    past = ("--history", "snapshot:/past")
    assert asking.does(*pair, *past) == ("_verify_one_pair", ["/m", "/s", "/s2"], "/past", False)
    assert asking.does(*pair, *past, "--record")[2:] == ("/past", True)
    assert asking.told[-1][1]["history"] == "snapshot:/past"
    with pytest.raises(WrongUsage, match="--record adds to a history"):
        asking.does(*pair, "--record")
    cluster = "namesrv://n:1"
    assert asking.does("--cluster", cluster) == (
        "_verify_many_pairs",
        ("client", cluster),
        None,
        False,
    )
    pairs = tmp_path / "pairs"
    pairs.write_text("/m /s\n/n /t\n")
    name, found, *_ = asking.does("--pairs", str(pairs))
    assert (name, [list(each) for each in found]) == (
        "_verify_many_pairs",
        [["/m", "/s"], ["/n", "/t"]],
    )
    assert asking.told[-1][1] == {"pairs": str(pairs)}


@pytest.mark.parametrize("other", [{"namesrv": "n:1"}, {"brokerAddr": "h:1"}])
def test_a_store_and_a_cluster_are_not_read_together(other: dict[str, str]) -> None:
    """Whoever names both has to say which one is meant."""
    ((name, value),) = other.items()
    with pytest.raises(WrongUsage, match=f"path='/a' is a store, {name}='{value}'"):
        parse_options({"path": "/a", **other})
