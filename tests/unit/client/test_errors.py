"""Which errors may pass by themselves: what users write `except ... if error.retriable` for."""

import pytest

from rmq_ha.base.errors import (
    ConfigurationError,
    InconsistentLedger,
    ProtocolViolation,
    RemotingConnectError,
    RemotingTimeout,
    RmqHaError,
)
from rmq_ha.client.rules.errors import (
    BatchFailed,
    BrokerRefused,
    IllegalMessage,
    NoMaster,
    NoNameServer,
    NoRoute,
    NotStarted,
    RequestTimeout,
    SendFailed,
    SendTimeout,
    TooManyInFlight,
)

BUSY = BrokerRefused(2, "[OVERLOAD]", "a:1")


@pytest.mark.parametrize(
    "error",
    [
        RemotingConnectError("x"),
        RemotingTimeout("x"),
        NoNameServer("x"),
        NoMaster("x"),
        NoRoute("T", "x", retriable=True),
        BUSY,
        BrokerRefused(14, "", "a:1"),
        BrokerRefused(1, "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control", "a:1"),
        SendTimeout("x"),
        SendFailed("x", retriable=True),
        BatchFailed(BUSY, (), 1),
        TooManyInFlight("x"),
        RequestTimeout("x"),
    ],
    ids=repr,
)
def test_may_pass(error: RmqHaError) -> None:
    assert error.retriable


@pytest.mark.parametrize(
    "error",
    [
        RmqHaError("x"),
        ConfigurationError("x"),
        ProtocolViolation("x"),
        NotStarted("x"),
        IllegalMessage("x"),
        NoRoute("T", "x"),
        BrokerRefused(1, "AclException: no", "a:1"),
        BrokerRefused(1, "java.lang.NullPointerException", "a:1"),
        BrokerRefused(13, "broker busy", "a:1"),
        BrokerRefused(16, None, "a:1"),
        BrokerRefused(17, None, "a:1"),
        SendFailed("x"),
        BatchFailed(IllegalMessage("x"), (), 1),
    ],
    ids=repr,
)
def test_will_not_change(error: RmqHaError) -> None:
    assert not error.retriable


def test_a_lack_of_rights_is_known_by_what_brokers_say() -> None:
    """Ours and Java's answer SYSTEM_ERROR, as for anything."""
    java = "org.apache.rocketmq.acl.common.AclException: No default permission for T"
    assert BrokerRefused(1, java, "a:1").is_access
    assert not BrokerRefused(1, "no", "a:1").is_access
    assert not BrokerRefused(16, java, "a:1").is_access


def test_a_ledger_s_refusal_reads_as_its_reason() -> None:
    refusal = InconsistentLedger(416, "entry 7 does not follow 5")
    assert (refusal.code, str(refusal)) == (416, "entry 7 does not follow 5")
