"""The small values that everybody hands around: what they make of what peers and files say."""

from typing import Any

import msgspec
import pytest

from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    PutMessageResult,
    offset_msg_id,
    place_of,
)
from rmq_ha.base.model.numbers import Int32
from rmq_ha.base.model.properties import decode_properties, encode_properties, waits
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.subscription import TAG, SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.members import from_members, to_members

IDENTITY = BrokerIdentity("cluster", "broker-a", 3, "10.0.0.1:10911", "10.0.0.1:10912")
ASKED = IDENTITY.to_ext()


@pytest.mark.parametrize(
    ("status", "is_stored"),
    [
        (PutMessageStatus.PUT_OK, True),
        (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, True),
        (PutMessageStatus.SERVICE_NOT_AVAILABLE, False),
    ],
)
def test_what_a_store_refuses_has_no_place(status: PutMessageStatus, is_stored: bool) -> None:
    """Whatever a store, or a plugin around it, hands back beside the refusal."""
    append = AppendResult(0, 60, 1, 0, 1, "")
    assert PutMessageResult(status, append).stored == (append if is_stored else None)
    assert PutMessageResult(status).stored is None


def test_a_broker_is_who_it_says_it_is() -> None:
    assert BrokerIdentity.from_ext(ASKED) == IDENTITY
    alone = {key: value for key, value in ASKED.items() if key != "haServerAddr"}
    assert BrokerIdentity.from_ext(alone) == IDENTITY._replace(ha_address="")
    assert BrokerIdentity.from_ext(ASKED | {"brokerId": "9" * 18}).broker_id == 10**18 - 1


@pytest.mark.parametrize("number", ["", "-1", "x", "1.0", "\u0661", "9" * 19])
def test_a_broker_without_a_number_is_refused(number: str) -> None:
    with pytest.raises(ValueError, match="is not a number from 0 on"):
        BrokerIdentity.from_ext(ASKED | {"brokerId": number})


@pytest.mark.parametrize("name", ["clusterName", "brokerName", "brokerAddr"])
def test_a_broker_without_a_name_is_refused(name: str) -> None:
    for ext in (ASKED | {name: ""}, {key: ASKED[key] for key in ASKED if key != name}):
        with pytest.raises(ValueError, match=f"the request lacks {name}"):
            BrokerIdentity.from_ext(ext)


def test_every_change_is_another_version() -> None:
    version = DataVersion()
    version.next_version(7)
    version.next_version(7)
    assert version == DataVersion(7, 2)
    copy = DataVersion(9, 9)
    copy.assign(version)
    assert copy == version
    assert from_members(DataVersion, to_members(version)) == version
    assert from_members(DataVersion, {}) == DataVersion(0, 0)


@pytest.mark.parametrize(
    ("host", "text", "is_v6"),
    [
        ("10.0.0.1", "10.0.0.1:9", False),
        ("::ffff:10.0.0.1", "10.0.0.1:9", False),
        ("fe80::1%eth0", "[fe80::1]:9", True),
        ("::1", "[::1]:9", True),
    ],
)
def test_an_address_is_stored_and_shown(host: str, text: str, is_v6: bool) -> None:
    address = Address.parse(host, 9)
    assert str(address) == text
    assert (address.is_v6, len(address.ip)) == (is_v6, 16 if is_v6 else 4)


@pytest.mark.parametrize("host", ["10.0.0.1", "::1"])
def test_an_id_names_the_place_in_the_log(host: str) -> None:
    for place in (0, 258, (1 << 63) - 1):
        assert place_of(offset_msg_id(Address.parse(host, 10911), place)) == place


@pytest.mark.parametrize("text", ["", "x", "0" * 31, "0" * 30, "0" * 34, "0" * 32 + "g"])
def test_what_is_no_id_names_none(text: str) -> None:
    assert place_of(text) is None


def test_an_append_ends_behind_its_record() -> None:
    assert AppendResult(100, 20, 0, 0, 1, "").next_offset == 120


@pytest.mark.parametrize("number", [0, -5, "7", (1 << 31) - 1, -(1 << 31)])
def test_a_number_of_java_is_taken(number: Any) -> None:
    assert from_members(Int32, number) == int(number)


@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1, "7x"])
def test_one_that_java_could_not_hold_is_not(number: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        from_members(Int32, number)


@pytest.mark.parametrize(
    ("numbers", "taken"),
    [
        ([], set()),
        ([-(1 << 31), 7, (1 << 31) - 1], {-(1 << 31), 7, (1 << 31) - 1}),
        (["7", 8], {7, 8}),
        ([7, 1 << 31], None),
        ([7, -(1 << 31) - 1], None),
        (["7", 1 << 31], None),
    ],
)
def test_numbers_of_java_are_taken_together(numbers: Any, taken: set[int] | None) -> None:
    """Large ones may share a hash: a set of 100,000 of them would take a minute."""
    if taken is not None:
        assert from_members(set[Int32], numbers) == taken
        return
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        from_members(set[Int32], numbers)


def test_only_what_says_so_does_not_wait() -> None:
    assert [waits(value) for value in (None, "true", "TRUE")] == [True] * 3
    assert [waits(value) for value in ("false", "", "1")] == [False] * 3


def test_properties_are_read_as_java_does() -> None:
    text = "a\x011\x02\x02b\x01\x02\x01c\x02d\x02e\x015\x01x\x02a\x012"
    assert decode_properties(text) == {"a": "2", "e": "5\x01x"}
    assert decode_properties("") == {}
    assert encode_properties({"a": "1", "b": "2"}) == "a\x011\x02b\x012"


def test_the_first_four_statuses_are_of_messages_that_are_stored() -> None:
    stored = [status for status in PutMessageStatus if status.is_stored]
    assert stored == [
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
    ]


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_a_subscription_without_tags_is_to_all(expression: str | None) -> None:
    found = SubscriptionData.for_tags("T", expression, 5)
    assert found == SubscriptionData("T", "*", set(), set(), 5, TAG)


def test_a_subscription_knows_its_tags_and_their_codes() -> None:
    found = SubscriptionData.for_tags("T", " a ||b|| ||a", 5)
    codes = {tags_code("a"), tags_code("b")}
    assert found == SubscriptionData("T", " a ||b|| ||a", {"a", "b"}, codes, 5, TAG)
    assert from_members(SubscriptionData, to_members(found)) == found
    assert from_members(SubscriptionData, {}) == SubscriptionData("", "")
    go = to_members(found) | {"codeSet": [str(code) for code in codes], "classFilterMode": True}
    assert from_members(SubscriptionData, go).code_set == codes
    assert from_members(SubscriptionData, go).class_filter_mode is True


def test_a_tag_that_is_no_text_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `int` .*tagsSet"):
        from_members(SubscriptionData, {"tagsSet": [1]})


def test_configurations_of_files_are_what_they_were() -> None:
    """What a file leaves out is as in Java's classes."""
    topic = TopicConfig("T", 3, 4, 2, "MULTI_TAG", 1, True)
    assert from_members(TopicConfig, to_members(topic)) == topic
    assert from_members(TopicConfig, {}) == TopicConfig("", 16, 16, 6, "SINGLE_TAG", 0, False)
    group = SubscriptionGroupConfig("G", False, False, False, 2, 3, 4, 5, False)
    assert from_members(SubscriptionGroupConfig, to_members(group)) == group
    usual = SubscriptionGroupConfig("", True, True, True, 1, 16, 0, 1, True)
    assert from_members(SubscriptionGroupConfig, {}) == usual
