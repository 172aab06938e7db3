"""Options of a read: as in Spark's Kafka source, and every contradiction is said."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.lake.spark.source.boundaries import BoundaryKind
from rmq_ha.lake.spark.source.options import (
    SOURCE_NAMES,
    SourceOptions,
    columns_asked,
    parse_options,
)
from rmq_ha.lake.spark.source.reading import QueueId, Subscription

STORE = {"path": "/store"}
LIVE = {"namesrv": "ns:9876", "subscribe": "T"}


def parsed(given: dict[str, str], streaming: bool = False) -> SourceOptions:
    return parse_options(given, streaming=streaming)


def test_a_store_is_read_whole_by_default() -> None:
    options = parsed(STORE)
    assert options.is_offline
    assert options.subscription.is_everything
    assert (options.start.kind, options.end.kind) == (BoundaryKind.EARLIEST, BoundaryKind.LATEST)
    assert options.fail_on_data_loss
    assert (options.scan, options.table, options.tags) == ("auto", "messages", None)
    assert not options.include_properties


def test_a_stream_begins_at_the_end_by_default() -> None:
    assert parsed(LIVE, streaming=True).start.kind is BoundaryKind.LATEST


def test_case_does_not_matter() -> None:
    options = parsed({"NAMESRV": "ns:1", "SubscribE": "T", "startingoffsets": "EARLIEST"})
    assert options.namesrv == "ns:1"
    assert options.subscription.topics == ("T",)


def test_the_options_can_be_pickled() -> None:
    given = {**LIVE, "startingOffsets": '{"T":{"0":1}}', "accessKey": "a", "secretKey": "s"}
    options = parsed(given)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("name", ["nameServer", "rocketmq.namesrv.addr", "nameserver"])
def test_name_servers_have_other_names(name: str) -> None:
    assert parsed({name: "ns:9876", "topic": "T"}).namesrv == "ns:9876"


def test_the_spellings_of_rocketmq_spark() -> None:
    options = parsed(
        {
            "nameServer": "ns:9876",
            "topic": "T",
            "startingOffsets": '{"T":{"broker-a":{"0":23},"broker-b":{"0":-2}}}',
            "endingOffsets": '{"T":{"broker-a":{"0":30},"broker-b":{"0":-1}}}',
            "failOnDataLoss": "false",
            "subExpression": "A || B",
            "pullTimeoutMs": "5000",
            "pullBatchSize": "64",
            "group": "g",
        }
    )
    assert options.start.offset_of(QueueId("T", "broker-a", 0)) == 23
    assert options.end.offset_of(QueueId("T", "broker-b", 0)) == -1
    assert options.tags == frozenset({"A", "B"})
    assert options.tag_expression == "A || B"
    assert (options.pull_timeout_ms, options.pull_batch_size, options.group) == (5000, 64, "g")
    assert not options.fail_on_data_loss


def test_the_same_option_twice_must_agree() -> None:
    assert parsed({"namesrv": "a:1", "nameServer": "a:1", "subscribe": "T"}).namesrv == "a:1"
    with pytest.raises(WrongUsage, match="the same option"):
        parsed({"namesrv": "a:1", "nameServer": "b:1", "subscribe": "T"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscrbe", "did you mean 'subscribe'"),
        ("startingOffset", "did you mean 'startingOffsets'"),
        ("nameservers", "did you mean 'nameServer'"),
        ("failOnDataloss2", "did you mean 'failOnDataLoss'"),
        ("kafka.bootstrap.servers", "write namesrv"),
        ("groupIdPrefix", "belong to no group"),
        ("location", "is `path`"),
        ("xyzzy", "there are path, namesrv"),
    ],
)
def test_an_unknown_option_is_refused_with_what_was_meant(name: str, hint: str) -> None:
    with pytest.raises(WrongUsage, match=hint):
        parsed({**STORE, name: "1"})


def test_keys_of_spark_itself_are_none_of_ours() -> None:
    parsed({**STORE, "checkpointLocation": "/c", "queryName": "q"})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "nothing to read from"),
        ({"path": ""}, "nothing to read from"),
        ({**STORE, "namesrv": "a:1"}, "give one of them"),
        ({**STORE, "brokerAddr": "a:1", "table": "topics"}, "give one of them"),
        ({**LIVE, "brokerAddr": "a:1"}, "give one of them"),
        ({"brokerAddr": "a:1;b:1", "subscribe": "T"}, "one place for each"),
        ({"namesrv": "host", "subscribe": "T"}, "'host' is not host:port"),
        ({"namesrv": "a:1"}, "which topics"),
        ({**LIVE, "assign": '{"T":[0]}'}, "both choose topics"),
        ({**STORE, "subscribe": " , "}, "write topics"),
        ({**STORE, "subscribePattern": "("}, "no regular expression"),
        ({**STORE, "subscribePattern": " "}, "is empty"),
        ({**STORE, "assign": '{"T":[]}'}, "write JSON"),
        ({**STORE, "assign": '{"T":["0"]}'}, "write JSON"),
        ({**STORE, "assign": '{"T":[-1]}'}, "write JSON"),
        ({**STORE, "assign": "T:0"}, "write JSON"),
        ({**STORE, "startingOffsets": "latest"}, "reads nothing"),
        ({**STORE, "endingOffsets": "earliest"}, "reads nothing"),
        ({**STORE, "startingOffsets": "23"}, "group:NAME or JSON"),
        ({**STORE, "startingOffsets": "{}"}, "group:NAME or JSON"),
        ({**STORE, "startingOffsets": '{"T":{"0":-1}}'}, "cannot begin at the end"),
        ({**STORE, "startingOffsets": '{"T":{"0":-3}}'}, "is no offset"),
        ({**STORE, "startingOffsets": '{"T":{"x":1}}'}, "write"),
        ({**STORE, "startingOffsets": '{"T":{"0":1.5}}'}, "write"),
        ({**STORE, "startingOffsets": '{"T":{"0":true}}'}, "write"),
        ({**STORE, "startingOffsets": '{"T":{"0":1,"0":2}}'}, "write"),
        ({**STORE, "endingOffsets": '{"T":{"0":-2}}'}, "cannot end at the beginning"),
        ({**STORE, "startingTimestamp": "-1"}, "0 or more"),
        ({**STORE, "startingTimestamp": "now"}, "0 or more"),
        ({**STORE, "startingOffsetsByTimestamp": '{"T":{"0":-1}}'}, "no time"),
        ({**STORE, "startingOffsetsByTimestampStrategy": "first"}, "one of error, latest"),
        ({**STORE, "failOnDataLoss": "yes"}, "true or false"),
        ({**STORE, "minPartitions": "0"}, "above 0"),
        ({**STORE, "splitSize": "64 feet"}, "64m"),
        ({**STORE, "scan": "index"}, "one of auto, files, queues"),
        ({**STORE, "scan": "files", "maxRecordsPerPartition": "5"}, "scan=queues"),
        ({**STORE, "maxHashSlotNum": "5"}, "given together"),
        ({**STORE, "assign": '{"T":{"b":[0]}}'}, "give brokerName"),
        ({**STORE, "endingOffsets": '{"T":{"b":{"0":1}}}'}, "give brokerName"),
        ({**STORE, "table": "topic"}, "one of messages"),
        ({**STORE, "table": "topics", "startingOffsets": "earliest"}, "for messages"),
        ({**STORE, "accessKey": "a", "secretKey": "b"}, "for running brokers"),
        ({**LIVE, "scan": "files"}, "for stores"),
        ({**LIVE, "accessKey": "a"}, "given together"),
        ({**LIVE, "pullBatchSize": "0"}, "above 0"),
        ({**LIVE, "pullBatchSize": "4294967296"}, "at most 2147483647"),
        ({**LIVE, "pullTimeoutMs": "99999999999999"}, "at most 2147483647"),
        ({**LIVE, "fetchOffset.retryIntervalMs": "99999999999"}, "at most 2147483647"),
        ({**STORE, "batchRows": "99999999999"}, "at most 2147483647"),
        ({**STORE, "startingTimestamp": "0" * 20 + "9" * 20}, "0 or more"),
        ({**STORE, "startingTimestamp": "9" * 5000}, "0 or more"),
        ({**STORE, "splitSize": "999999999999999g"}, "64m"),
        ({**STORE, "startingOffsets": '{"T":{"0":1,"00":2}}'}, "write"),
        ({**LIVE, "securityToken": "t"}, "accessKey"),
        ({**LIVE, "useTLS": "false", "tls.enable": "true"}, "useTLS"),
        ({**LIVE, "commitOffsets": "g"}, "for streams"),
        ({**STORE, "table": "topics", "includeProperties": "true"}, "for messages"),
        ({**STORE, "table": "topics", "minPartitions": "3"}, "for messages"),
        ({**STORE, "table": "queues", "failOnDataLoss": "false"}, "for messages"),
        ({**STORE, "table": "topics", "maxOffsetsPerTrigger": "3"}, "for messages"),
    ],
)
def test_a_contradiction_is_said(given: dict[str, str], why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        parsed(given)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(WrongUsage, match="a stream does not end"):
        parsed({**LIVE, name: "1"}, streaming=True)


def test_a_stream_reads_messages_only() -> None:
    with pytest.raises(WrongUsage, match="streams read messages"):
        parsed({**STORE, "table": "topics"}, streaming=True)


def test_a_stream_reads_no_files() -> None:
    with pytest.raises(WrongUsage, match="a stream follows queues"):
        parsed({**STORE, "scan": "files"}, streaming=True)


def test_a_stream_may_begin_at_the_end_of_a_queue() -> None:
    options = parsed({**LIVE, "startingOffsets": '{"T":{"0":-1}}'}, streaming=True)
    assert options.start.offset_of(QueueId("T", "b", 0)) == -1


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_one_time_goes_before_times_and_times_before_offsets(which: str) -> None:
    def boundary(given: dict[str, str]) -> Any:
        options = parsed({**STORE, **given})
        return options.start if which == "starting" else options.end

    offsets = {f"{which}Offsets": '{"T":{"0":5}}'}
    times = {f"{which}OffsetsByTimestamp": '{"T":{"0":7}}'}
    time = {f"{which}Timestamp": "9"}
    assert boundary(offsets).kind is BoundaryKind.OFFSETS
    assert boundary(offsets | times).kind is BoundaryKind.TIMES
    both = boundary(offsets | times | time)
    assert (both.kind, both.ms) == (BoundaryKind.TIME, 9)


def test_numbers_of_a_stream() -> None:
    options = parsed(
        {
            **LIVE,
            "maxOffsetsPerTrigger": "10",
            "minOffsetsPerTrigger": "5",
            "maxTriggerDelay": "30s",
            "maxBytesPerTrigger": "2m",
        },
        streaming=True,
    )
    assert (options.max_offsets, options.min_offsets) == (10, 5)
    assert (options.max_trigger_delay_ms, options.max_bytes) == (30_000, 2 << 20)
    assert parsed(LIVE, streaming=True).max_trigger_delay_ms == 900_000


def test_accounts_and_tls() -> None:
    client = parsed(
        {**LIVE, "accessKey": "a", "secretKey": "s", "TLS.client.trustCertPath": "/ca"}
    ).client
    assert client.credentials == Credentials("a", "s")
    assert client.use_tls
    assert client.tls == {"tls.client.trustCertPath": "/ca"}
    assert not parsed(LIVE).client.use_tls


def test_tls_that_is_switched_off_stays_off() -> None:
    assert not parsed(
        {**LIVE, "tls.enable": "false", "tls.client.trustCertPath": "/ca"}
    ).client.use_tls
    assert parsed({**LIVE, "tls.enable": "true"}).client.use_tls


def test_secrets_are_not_shown() -> None:
    """Neither when options are printed, nor when they are wrong."""
    secrets = {"secretKey": "hush1", "securityToken": "hush2", "tls.client.keyPassword": "hush3"}
    options = parsed({**LIVE, "accessKey": "a", **secrets})
    assert "hush" not in repr(options)
    for name in secrets:
        with pytest.raises(WrongUsage, match="the same option") as raised:
            parsed({**LIVE, name: "hush4", name.upper(): "hush5"})
        assert "hush" not in str(raised.value)


def test_what_can_be_subscribed_to() -> None:
    def chosen(**given: str) -> Subscription:
        return parsed({**STORE, "brokerName": "x", **given}).subscription

    some = chosen(subscribe="A, B,A")
    assert some.named == ("A", "B")
    assert some.wants(QueueId("A", "x", 3))
    assert not some.wants(QueueId("a", "x", 3))
    pattern = chosen(subscribePattern="T.")
    assert pattern.wants_topic("T1")
    assert not pattern.wants_topic("T12")  # the whole name has to match
    assigned = chosen(assign='{"T":[0,2],"U":{"broker-a":[1]}}')
    assert assigned.named == ("T", "U")
    assert assigned.wants(QueueId("T", "any", 2))
    assert not assigned.wants(QueueId("T", "any", 1))
    assert assigned.wants(QueueId("U", "broker-a", 1))
    assert not assigned.wants(QueueId("U", "broker-b", 1))


def test_the_columns_are_known_before_the_rest_is_checked() -> None:
    assert columns_asked({"namesrv": "a:1", "startingOffsets": "latest"}) == (
        "messages",
        "rocketmq",
        False,
    )
    assert columns_asked({"columns": "KAFKA", "includeHeaders": "true"}) == (
        "messages",
        "kafka",
        True,
    )


def test_what_sparks_catalog_adds_to_the_options_of_a_table_is_passed_over() -> None:
    """As Spark 4.3 hands them over for CREATE TABLE ... USING rocketmq OPTIONS (...)."""
    added = {"provider": "rocketmq", "owner": "root", "option.subscribe": "T"}
    assert parsed({**LIVE, **added}).namesrv == "ns:9876"
    assert parsed({"path": "file:/s", "location": "file:/s", **added}).path == "/s"
    with pytest.raises(WrongUsage, match="is `path`"):
        parsed({**STORE, "location": "/store"})


def test_case_of_tls_keys_is_restored() -> None:
    """Spark may hand over keys in lower case."""
    client = parsed({**LIVE, "tls.client.trustcertpath": "/ca"}).client
    assert client.tls == {"tls.client.trustCertPath": "/ca"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["T", "0", "b", "-1"]), inner, max_size=2)
    ),
    max_leaves=6,
)
VALUES = st.text(max_size=12) | JSON.map(json.dumps) | st.sampled_from(["true", "5", "4m", "1h"])


@hypothesis_given(
    st.sampled_from([STORE, LIVE]),
    st.dictionaries(st.sampled_from(SOURCE_NAMES), VALUES, max_size=3),
    st.booleans(),
)
def test_any_text_is_an_option_or_wrong_usage(
    place: dict[str, str], more: dict[str, str], streaming: bool
) -> None:
    try:
        options = parsed({**more, **place}, streaming)
    except WrongUsage:
        return
    assert pickle.loads(pickle.dumps(options)) == options
