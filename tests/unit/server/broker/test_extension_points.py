"""A real broker with guests in every extension point, found as an installed package's are."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import gatherResults
from twisted.logger import globalLogPublisher

import twisted.plugins
from rmq_ha.base.errors import ConfigurationError, PluginNotFound
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.unit.server.broker.sim_broker import FAST_PORT, TOPIC, SimBroker

MODULE = "rmqha_fake_plugins"
SOURCE = Path(__file__).parent / "data" / "fake_plugins.py"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A package with plugins, where Twisted looks for them."""
    folder = tmp_path_factory.mktemp("site") / "twisted" / "plugins"
    folder.mkdir(parents=True)
    shutil.copy(SOURCE, folder / f"{MODULE}.py")
    twisted.plugins.__path__.append(str(folder))
    name = f"twisted.plugins.{MODULE}"
    __import__(name)
    yield sys.modules[name]
    twisted.plugins.__path__.remove(str(folder))
    del sys.modules[name]


@pytest.fixture
def seen(package: Any) -> list[Any]:
    """What plugins were told in this test."""
    package.SEEN.clear()
    found: list[Any] = package.SEEN
    return found


@pytest.fixture
def broker(seen: list[Any]) -> Iterator[SimBroker]:
    """Not started yet."""
    broker = SimBroker()
    yield broker
    if broker.broker is not None:
        broker.stop()


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """Formats of what is logged."""
    lines: list[str] = []

    def observe(event: Any) -> None:
        lines.append(event.get("log_format") or "")

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


def batch(*bodies: bytes, group: str = "producers", properties: str = "") -> RemotingCommand:
    """A request that sends a batch to queue 0."""
    request = send_request(
        group, TOPIC, 0, encode_batch([(0, body, "") for body in bodies]), properties, 1
    )
    assert request.ext is not None
    request.code, request.ext["m"] = RequestCode.SEND_BATCH_MESSAGE, "true"
    return request


# ------------------------------------------------------------------ stores


def test_a_store_plugin_sees_sends_batches_and_pulls(broker: SimBroker, seen: list[Any]) -> None:
    """A run of sends in one chunk as well: nothing goes around it."""
    broker.configuration.broker.message_store_plug_in = "inner"
    broker.start()
    answers = [broker.ask(broker.message(body)) for body in (b"1", b"2", b"3")]
    codes = [answer.code for answer in broker.wait(gatherResults(answers))]
    assert codes == [0, 0, 0]
    assert broker.call(batch(b"4", b"5")).code == ResponseCode.SUCCESS
    puts = [item for item in seen if item[1] == "put"]
    assert [item[3] for item in puts] == [b"1", b"2", b"3"]
    assert ("inner", "batch", TOPIC, 2) in seen
    broker.world.clock.run_for(1)
    assert broker.pull().code == ResponseCode.SUCCESS
    assert ("inner", "get", TOPIC, 0) in seen


def test_a_long_batch_behind_a_plugin_lets_others_in_and_keeps_its_senders_order(
    broker: SimBroker, seen: list[Any]
) -> None:
    """All of it was laid out in one turn: 20,000 members held the broker for 60 ms."""
    broker.configuration.broker.message_store_plug_in = "inner"
    broker.configuration.store.mapped_file_size_commit_log = 1 << 20
    store = broker.start().broker.store
    answers: list[Any] = []
    for request in (batch(*[b"x"] * 1600), broker.message(b"after")):
        broker.ask(request).addCallback(answers.append)
    broker.world.clock.run_while(lambda: not seen, 1)
    host = Address.parse("10.0.0.9", 1)
    before = store.put_message(BrokerMessage(TOPIC, 0, b"other", host, host))
    broker.world.clock.run_for(1)
    assert broker.wait(before).append.queue_offset == 0
    assert [answer.ext["queueOffset"] for answer in answers] == ["1", "1601"]


def test_a_message_given_back_goes_through_the_store_plugin(
    broker: SimBroker, seen: list[Any]
) -> None:
    """And so do the two messages of a committed transaction."""
    broker.configuration.broker.message_store_plug_in = "inner"
    broker.start()
    sent = broker.send().ext or {}
    half = broker.call(broker.message(b"half", TRAN_MSG="true", PGROUP="producers")).ext or {}
    broker.world.clock.run_for(1)
    back = RemotingCommand(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {"offset": str(int(sent["msgId"][16:], 16)), "group": "consumers", "delayLevel": "0"},
    )
    assert broker.call(back).code == ResponseCode.SUCCESS
    assert [item[2] for item in seen if item[1] == "put"][-1] == "%RETRY%consumers"
    end = RemotingCommand(
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": "producers",
            "commitLogOffset": str(int(half["msgId"][16:], 16)),
            "tranStateTableOffset": half["queueOffset"],
            "commitOrRollback": "8",
        },
    )
    assert broker.call(end).code == ResponseCode.SUCCESS
    puts = [item[2] for item in seen if item[1] == "put"]
    assert puts[-2:] == [TOPIC, "RMQ_SYS_TRANS_OP_HALF_TOPIC"]


def test_store_plugins_lie_around_each_other_the_last_outermost(
    broker: SimBroker, seen: list[Any]
) -> None:
    broker.configuration.broker.message_store_plug_in = "inner, outer"
    broker.start().send()
    assert [item[0] for item in seen if item[1] == "put"] == ["outer", "inner"]


# ------------------------------------------------------------------ journal, dispatcher


def test_a_journal_plugin_has_another_replication_which_is_started_asked_and_stopped(
    broker: SimBroker, seen: list[Any]
) -> None:
    """What it says about a put is what the producer reads."""
    broker.configuration.ours.journal_plug_in = "fake-replica"
    broker.start()
    assert seen == ["replication starts"]
    assert broker.send().code == ResponseCode.SLAVE_NOT_AVAILABLE
    log = broker.broker.store.log
    assert ("wait", 0, log.max_offset) in seen
    broker.world.clock.run_for(0.1)
    assert ("appended", log.max_offset) in seen
    broker.stop()
    assert seen[-1] == "replication stops"


def test_a_journal_plugin_sees_what_is_appended(broker: SimBroker, seen: list[Any]) -> None:
    """The broker stops, starts again and serves what it has."""
    broker.configuration.ours.journal_plug_in = "fake-journal"
    broker.start()
    broker.send()
    broker.call(batch(b"1", b"2"))
    assert ("append", 1) in seen
    assert ("batch", 2) in seen
    broker.stop()
    broker.start()
    answer = broker.pull()
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.ext or {})["nextBeginOffset"] == "3"


def test_a_dispatcher_sees_every_record_once_and_in_order(
    broker: SimBroker, seen: list[Any]
) -> None:
    broker.configuration.ours.dispatcher_plug_in = "fake-dispatcher"
    broker.start()
    answers = [broker.ask(broker.message(b"x")) for _ in range(20)]
    broker.wait(gatherResults(answers))
    broker.world.clock.run_for(1)
    assert [item for batch in seen for item in batch] == [(TOPIC, n) for n in range(20)]


def test_a_failing_dispatcher_stops_nobody(broker: SimBroker, seen: list[Any]) -> None:
    broker.configuration.ours.dispatcher_plug_in = "fake-dispatcher"
    broker.configuration.plugin_options["fake-dispatcher.fails"] = "true"
    broker.start()
    broker.send(b"1")
    broker.send(b"2")
    broker.world.clock.run_for(1)
    assert (broker.pull().ext or {})["nextBeginOffset"] == "2"
    assert sum(map(len, seen)) == 2


# ------------------------------------------------------------------ hooks


def test_a_send_hook_sees_before_and_after(broker: SimBroker, seen: list[Any]) -> None:
    broker.configuration.ours.hook_plug_in = "fake-send"
    broker.start()
    answer = broker.call(broker.message(b"12345", KEYS="k"))
    (before, first), (after, second) = seen
    assert (before, after) == ("before", "after")
    assert first["topic"] == TOPIC
    assert first["queue_id"] == 0
    assert first["producer_group"] == "producers"
    assert first["born_host"].startswith(f"{broker.client_host.ip}:")
    assert first["body_size"] == 5
    assert first["properties"]["KEYS"] == "k"
    ext = answer.ext or {}
    assert second.items() >= first.items()
    assert second["code"] == ResponseCode.SUCCESS
    assert second["msg_id"] == ext["msgId"]
    assert second["queue_offset"] == ext["queueOffset"]


def test_a_send_hook_sees_replies(broker: SimBroker, seen: list[Any]) -> None:
    """Also one whose requester is gone, with the code that the responder gets."""
    broker.configuration.ours.hook_plug_in = "fake-send"
    broker.start()
    request = broker.message(b"answer", MSG_TYPE="reply", REPLY_TO_CLIENT="c1", TTL="3000")
    request.code = RequestCode.SEND_REPLY_MESSAGE_V2
    answer = broker.call(request)
    (before, _), (after, second) = seen
    assert (before, after) == ("before", "after")
    assert second["code"] == answer.code == ResponseCode.SYSTEM_ERROR


def test_a_send_hook_sees_batches(broker: SimBroker, seen: list[Any]) -> None:
    broker.configuration.ours.hook_plug_in = "fake-send"
    broker.start()
    answer = broker.call(batch(b"1", b"2", properties="KEYS\x01k"))
    (_, first), (_, second) = seen
    assert first["properties"]["KEYS"] == "k"
    assert first["body_size"] > 2
    assert second["msg_id"] == (answer.ext or {})["msgId"]
    refused = broker.call(batch(b"1", b"2", properties="KEYS\x01refuse"))
    assert refused.code == ResponseCode.NO_PERMISSION


def test_a_send_hook_refuses_and_nothing_is_stored(broker: SimBroker, seen: list[Any]) -> None:
    """On the fast port as on the main one."""
    broker.configuration.ours.hook_plug_in = "fake-send"
    broker.start()
    before = broker.broker.store.log.max_offset
    for port in (FAST_PORT, FAST_PORT + 2):
        answer = broker.call(broker.message(KEYS="refuse"), port)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the hook wants no such message"
    assert broker.broker.store.log.max_offset == before
    assert [kind for kind, _ in seen] == ["before", "before"]


def test_a_hook_that_fails_before_a_send_fails_the_send(broker: SimBroker, seen: list[Any]) -> None:
    """It may have been about to refuse."""
    broker.configuration.ours.hook_plug_in = "fake-send"
    broker.configuration.plugin_options["fake-send.broken"] = "before"
    broker.start()
    answer = broker.send()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "a fault of the hook" in (answer.remark or "")
    assert broker.broker.store.log.max_offset == 0


def test_a_hook_that_fails_after_a_send_changes_no_answer(
    broker: SimBroker, seen: list[Any], log_lines: list[str]
) -> None:
    """The message is stored: an error would have the producer send it twice."""
    broker.configuration.ours.hook_plug_in = "fake-send"
    broker.configuration.plugin_options["fake-send.broken"] = "after"
    broker.start()
    assert broker.send().code == ResponseCode.SUCCESS
    assert [line for line in log_lines if "hook" in line]


def test_a_hook_that_fails_after_a_send_keeps_it_from_no_other_hook(
    broker: SimBroker, seen: list[Any]
) -> None:
    broker.configuration.ours.hook_plug_in = "fake-send,fake-send"
    broker.configuration.plugin_options["fake-send.broken"] = "after"
    broker.start()
    assert broker.send().code == ResponseCode.SUCCESS
    assert [kind for kind, _ in seen] == ["before", "before", "after", "after"]


def test_a_consume_hook_sees_pulls_that_found_messages(broker: SimBroker, seen: list[Any]) -> None:
    """With a send hook beside it: each is asked only what it provides."""
    broker.configuration.ours.hook_plug_in = "fake-consume,fake-send"
    broker.start()
    broker.send()
    broker.world.clock.run_for(1)
    seen.clear()
    assert broker.pull(5).code != ResponseCode.SUCCESS
    assert seen == []
    answer = broker.pull()
    assert answer.code == ResponseCode.SUCCESS
    ((kind, context),) = seen
    assert kind == "consume"
    assert context["topic"] == TOPIC
    assert context["queue_id"] == 0
    assert context["consumer_group"] == "consumers"
    assert context["client_host"].startswith(f"{broker.client_host.ip}:")
    assert context["count"] == 1
    assert context["size"] == len(answer.body or b"")


def test_each_consume_hook_sees_a_pull(broker: SimBroker, seen: list[Any]) -> None:
    broker.configuration.ours.hook_plug_in = "fake-consume,fake-consume"
    broker.start()
    broker.send()
    broker.world.clock.run_for(1)
    assert broker.pull().code == ResponseCode.SUCCESS
    assert [kind for kind, _ in seen] == ["consume", "consume"]


def test_a_consume_hook_refuses_pulls_also_held_ones(broker: SimBroker, seen: list[Any]) -> None:
    broker.configuration.ours.hook_plug_in = "fake-consume"
    broker.start()
    held = broker.ask(pull_request("refused", TOPIC, 0, 0, hold_ms=5000))
    broker.world.clock.run_for(0.5)
    broker.send()
    for answer in (broker.wait(held), broker.call(pull_request("refused", TOPIC, 0, 0))):
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the hook wants no such reader"
        assert not answer.body


# ------------------------------------------------------------------ access


def test_a_validator_sees_every_request_on_both_ports(broker: SimBroker, seen: list[Any]) -> None:
    """Runs of sends included: there is no bulk way past it."""
    broker.configuration.ours.acl_plug_in = "fake-acl"
    broker.start()
    friendly = send_request("friends", TOPIC, 0, b"x", "", 1)
    for port in (FAST_PORT, FAST_PORT + 2):
        seen.clear()
        answers = [broker.ask(request, port) for request in (friendly, broker.message(), friendly)]
        first, refused, last = broker.wait(gatherResults(answers))
        assert (first.code, refused.code, last.code) == (0, ResponseCode.NO_PERMISSION, 0)
        assert refused.remark == "producers are no friends"
        assert seen == [(310, broker.client_host.ip)] * 3
    assert broker.broker.store.max_offset_in_queue(TOPIC, 0) == 4


def test_a_validator_refuses_one_way_requests_in_silence(
    broker: SimBroker, seen: list[Any]
) -> None:
    broker.configuration.ours.acl_plug_in = "fake-acl"
    broker.start()
    request = broker.message()
    request.flag |= FLAG_ONEWAY
    broker.wait(broker.client.oneway(f"{broker.host.ip}:{FAST_PORT}", request))
    broker.world.clock.run_for(1)
    assert seen == [(310, broker.client_host.ip)]
    assert broker.broker.store.log.max_offset == 0


# ------------------------------------------------------------------ what does not fit


@pytest.mark.parametrize(
    ("part", "key", "interface"),
    [
        ("broker", "message_store_plug_in", "IMessageStorePlugin"),
        ("ours", "journal_plug_in", "IJournalPlugin"),
        ("ours", "dispatcher_plug_in", "IDispatcherPlugin"),
        ("ours", "hook_plug_in", "IHookPlugin"),
        ("ours", "acl_plug_in", "IAccessPlugin"),
    ],
)
def test_a_name_that_is_not_installed_stops_the_start(
    broker: SimBroker, part: str, key: str, interface: str
) -> None:
    """With the names there are; a broker without its access validator must not run."""
    setattr(getattr(broker.configuration, part), key, "no-such")
    with pytest.raises(PluginNotFound, match=f"no {interface} called 'no-such'") as caught:
        broker.start()
    there = {"IHookPlugin": "fake-consume, fake-send", "IAccessPlugin": "fake-acl"}
    assert there.get(interface, "installed: ") in str(caught.value)


def test_a_plugin_that_makes_something_else_stops_the_start(broker: SimBroker) -> None:
    """A hook that is never called would look like one that never refuses."""
    broker.configuration.ours.hook_plug_in = "useless"
    with pytest.raises(ConfigurationError, match="useless") as caught:
        broker.start()
    assert "ISendMessageHook" in str(caught.value)


@pytest.mark.parametrize("named", ["classic,controller", ","])
def test_a_broker_has_one_journal(broker: SimBroker, named: str) -> None:
    """Of two the second was left out in silence; a comma alone was an error of Python's."""
    broker.configuration.ours.journal_plug_in = named
    with pytest.raises(ConfigurationError, match=r"journalPlugIn=.* name one"):
        broker.start()


def test_a_journal_that_is_none_stops_the_start_with_what_it_lacks(broker: SimBroker) -> None:
    broker.configuration.ours.journal_plug_in = "no-journal"
    with pytest.raises(ConfigurationError, match="is no Journal: it has no append, append_batch,"):
        broker.start()


def test_a_journal_with_the_method_of_an_older_version_stops_the_start(broker: SimBroker) -> None:
    """A method that is never called would promise what nobody keeps."""
    broker.configuration.ours.journal_plug_in = "old-journal"
    with pytest.raises(ConfigurationError, match="`kept`, which is called `when_kept`"):
        broker.start()
