"""Places of brokers, as the jobs' arguments name them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import WrongUsage
from rmq_ha.ops.offsets.places import (
    BrokerPlace,
    NamesrvPlace,
    SnapshotPlace,
    StorePlace,
    parse_place,
)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/data/store", StorePlace("/data/store")),
        ("./store", StorePlace("./store")),
        ("store", StorePlace("store")),
        ("master/store", StorePlace("master/store")),
        ("file:///data/store", StorePlace("file:///data/store")),
        ("s3://bucket/a/store", StorePlace("s3://bucket/a/store")),
        ("hdfs://nn:8020/store", StorePlace("hdfs://nn:8020/store")),
        ("broker://10.0.0.1:10911", BrokerPlace("10.0.0.1:10911")),
        ("broker://[::1]:10911/", BrokerPlace("[::1]:10911")),
        ("namesrv://ns:9876/broker-a", NamesrvPlace("ns:9876", "broker-a")),
        ("namesrv://a:1;b:2/broker-a?id=1", NamesrvPlace("a:1;b:2", "broker-a", 1)),
        ("snapshot:/var/snap", SnapshotPlace("/var/snap")),
        ("snapshot:s3://b/snap", SnapshotPlace("s3://b/snap")),
    ],
)
def test_each_form_is_read(text: str, place: object) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text",
    ["/data/store", "broker://h:1", "namesrv://a:1;b:2/x?id=0", "namesrv://a:1/x", "snapshot:d"],
)
def test_a_place_is_shown_as_it_was_written(text: str) -> None:
    assert str(parse_place(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no place"),
        ("10.0.0.1:10911", "is no place"),
        ("C:store", "is no place"),
        ("http://host/store", "is no place"),
        ("snapshot:", "is no place"),
        ("broker:host:1", "is no place"),
        ("broker://host", "'host' is not host:port"),
        ("broker://host:0", "'host:0' is not host:port"),
        ("broker://host:65536", "not host:port"),
        ("broker://a:1;b:2", "one place for each"),
        ("namesrv://a:1", "the broker's name"),
        ("namesrv://a:1/", "the broker's name"),
        ("namesrv://a:1/b/c", "the broker's name"),
        ("namesrv://a:1;/b", "'' is not host:port"),
        ("namesrv://a:1/b?id=x", "the broker's id"),
        ("namesrv://a:1/b?role=slave", "'role' means nothing"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        parse_place(text)


def test_the_refusal_names_all_four_forms() -> None:
    with pytest.raises(WrongUsage) as refused:
        parse_place("broker-a:10911")
    for form in ("/path", "broker://", "namesrv://", "snapshot:"):
        assert form in str(refused.value)


PARTS = st.sampled_from(["broker", "namesrv", "snapshot", "://", ":", "/", "h:1", ";", "?id=", "2"])


@given(st.text(max_size=30) | st.lists(PARTS, max_size=8).map("".join))
def test_any_text_is_a_place_or_wrong_usage(text: str) -> None:
    try:
        place = parse_place(text)
    except WrongUsage:
        return
    assert parse_place(str(place)) == place
