"""What signatures of 4.9 do not cover, each as an attack that passes, and that ours stop it."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from sim_broker import LISTEN_PORT, TOPIC
from test_acl_broker import ADMIN, USER, Guarded
from twisted.internet.defer import gatherResults

from rmq_ha.client.signing import RequestSigner, SignedTimes, sign
from rmq_ha.config.netty import NettyClientConfig
from rmq_ha.remoting.client import RemotingClient
from rmq_ha.wire.codes import RequestCode
from rmq_ha.wire.command import RemotingCommand

DELETE = RequestCode.DELETE_TOPIC_IN_BROKER
STATS = RequestCode.GET_TOPIC_STATS_INFO


def broker(**keys: Any) -> Guarded:
    made = Guarded()
    for name, value in keys.items():
        setattr(made.sim.configuration.ours, name, value)
    made.sim.start()
    return made


@pytest.fixture
def as_49() -> Iterator[Guarded]:
    """With the defaults."""
    made = broker()
    yield made
    made.sim.stop()


@pytest.fixture
def demanding() -> Iterator[Guarded]:
    made = broker(acl_requires_signed_time=True)
    made.pass_time(1)
    yield made
    made.sim.stop()


def again(made: Guarded, request: RemotingCommand) -> int:
    """From another connection, as somebody who recorded it would."""
    stranger = RemotingClient(made.sim.client_host.seams, NettyClientConfig())
    answer = made.sim.wait(stranger.invoke(f"{made.sim.host.ip}:{LISTEN_PORT}", request, 5000))
    made.sim.wait(stranger.stop())
    return int(answer.code)


def timed(made: Guarded, account: Any = ADMIN) -> RequestSigner:
    return RequestSigner(account, SignedTimes(made.sim.client_host.now_ms, Random(7)))


def stored(made: Guarded) -> int:
    return int(made.sim.controller.store.max_offset_in_queue(TOPIC, 0))


def refusals(made: Guarded) -> dict[str, int]:
    (control,) = made.sim.controller.access_controls
    return {kind.value: count for kind, count in control.refused.items() if count}


def test_a_recorded_request_of_49_is_good_for_ever(as_49: Guarded) -> None:
    recorded = sign(as_49.sim.message(), USER)
    assert again(as_49, recorded) == 0
    as_49.pass_time(3600)
    assert again(as_49, recorded) == 0
    assert stored(as_49) == 2


def test_its_code_is_not_covered(as_49: Guarded) -> None:
    """A question about a topic, recorded, deletes it."""
    recorded = sign(RemotingCommand(STATS, {"topic": TOPIC}), ADMIN)
    assert again(as_49, recorded) == 0
    assert as_49.sim.controller.topics.get("Mine") is None
    new = {"topic": "Mine", "defaultTopic": TOPIC, "readQueueNums": "1", "writeQueueNums": "1"}
    new |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert as_49.admin(RequestCode.UPDATE_AND_CREATE_TOPIC, **new).code == 0
    recorded = sign(RemotingCommand(STATS, {"topic": "Mine"}), ADMIN)
    recorded.code = DELETE
    assert again(as_49, recorded) == 0
    assert as_49.sim.controller.topics.get("Mine") is None


def test_names_and_where_values_end_are_not_covered(as_49: Guarded) -> None:
    """`ab` and `cT` are signed as `abc` and `T`; a field may get another name."""
    recorded = sign(RemotingCommand(STATS, {"topic": f"x{TOPIC}", "u": ""}), ADMIN)
    assert again(as_49, recorded) == 17
    assert recorded.ext is not None
    cut = {**recorded.ext, "topic": TOPIC, "nonsense": "x"}
    assert again(as_49, RemotingCommand(STATS, cut)) == 0


def test_neither_are_opaque_and_answer(as_49: Guarded) -> None:
    recorded = sign(as_49.sim.message(), USER)
    recorded.opaque, recorded.version, recorded.language = 77, 1, "GO"
    assert again(as_49, recorded) == 0


def test_who_renames_our_field_makes_it_one_of_49(as_49: Guarded) -> None:
    """So only `aclRequiresSignedTime` keeps replays out."""
    recorded = timed(as_49, USER).sign(as_49.sim.message())
    assert again(as_49, recorded) == 0
    assert again(as_49, recorded) == 1
    ext = dict(recorded.ext or {})
    ext["SignedTimf"] = ext.pop("SignedTime")
    recorded.ext = ext
    assert again(as_49, recorded) == 0
    assert refusals(as_49) == {"replay": 1}


def test_ours_cover_code_names_time_and_number(demanding: Guarded) -> None:
    signer = timed(demanding)
    recorded = signer.sign(demanding.sim.message())
    assert again(demanding, recorded) == 0
    assert again(demanding, recorded) == 1
    question = signer.sign(RemotingCommand(STATS, {"topic": TOPIC}))
    question.code = DELETE
    assert again(demanding, question) == 1
    late = signer.sign(RemotingCommand(STATS, {"topic": TOPIC}))
    demanding.pass_time(301)
    assert again(demanding, late) == 1
    assert again(demanding, sign(demanding.sim.message(), USER)) == 1
    assert stored(demanding) == 1
    assert refusals(demanding) == {
        "replay": 1,
        "signature": 1,
        "aclSignedTimeWindow": 1,
        "aclRequiresSignedTime": 1,
    }


def test_changed_rules_forget_no_request(demanding: Guarded) -> None:
    recorded = timed(demanding, USER).sign(demanding.sim.message())
    assert again(demanding, recorded) == 0
    demanding.disk.replace("/conf/plain_acl.yml", demanding.text().encode() + b"\n")
    demanding.pass_time(2)
    assert again(demanding, recorded) == 1


def test_a_run_of_sends_is_checked_once(demanding: Guarded) -> None:
    """Also what leaves the run for the general way, and what never was in it."""
    signer, sim = timed(demanding, USER), demanding.sim
    messages = [
        sim.message(b"%d" % number, TOPIC, **({"DELAY": "1"} if number % 3 == 1 else {}))
        for number in range(30)
    ]
    for message in messages[::5]:
        message.remark = "makes the header an odd one"
    address = f"{sim.host.ip}:{LISTEN_PORT}"
    answers = sim.wait(gatherResults([sim.ask(signer.sign(m, address)) for m in messages]))
    assert {answer.code for answer in answers} == {0}
    assert refusals(demanding) == {}
