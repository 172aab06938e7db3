"""What signatures of 4.9 do not cover, each as an attack that passes, and that ours stop it."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, gatherResults

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import AccessRefused, RemotingError
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.model.security import Security
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.signing import RequestSigner, SignedTimes, sign
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.broker.own_calls import signed
from rmq_ha.server.namesrv.access import make_access
from tests.unit.server.broker.sim_broker import LISTEN_PORT, TOPIC
from tests.unit.server.broker.test_acl_broker import ADMIN, USER, Guarded

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
    """A client of its own, with a session of its own."""
    host = made.sim.client_host
    return RequestSigner(account, SignedTimes(host.now_ms, host.seams.random))


def stored(made: Guarded) -> int:
    return int(made.sim.broker.store.max_offset_in_queue(TOPIC, 0))


def refusals(made: Guarded) -> dict[str, int]:
    (control,) = made.sim.broker.access_controls
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
    assert as_49.sim.broker.topics.get("Mine") is None
    new = {"topic": "Mine", "defaultTopic": TOPIC, "readQueueNums": "1", "writeQueueNums": "1"}
    new |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert as_49.admin(RequestCode.UPDATE_AND_CREATE_TOPIC, **new).code == 0
    recorded = sign(RemotingCommand(STATS, {"topic": "Mine"}), ADMIN)
    recorded.code = DELETE
    assert again(as_49, recorded) == 0
    assert as_49.sim.broker.topics.get("Mine") is None


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


def test_a_clock_that_was_set_wrong_stops_nobody_by_default(as_49: Guarded) -> None:
    late = timed(as_49, USER).sign(as_49.sim.message())
    as_49.pass_time(3600)
    (control,) = as_49.sim.broker.access_controls
    assert (again(as_49, late), control.odd_times) == (0, 1)


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


def test_a_slave_of_ours_copies_from_a_master_that_demands_it(demanding: Guarded) -> None:
    sim = demanding.sim
    configuration = sim.configuration
    address = f"{sim.host.ip}:{LISTEN_PORT}"

    def topics(*keys: str) -> Any:
        own = configuration.ours
        own.acl_access_key, own.acl_secret_key = keys
        api = BrokerOuterAPI(signed(sim.client, sim.client_host.seams, configuration))
        return sim.wait(Deferred.fromCoroutine(api.topic_configs(address)))

    for _ in range(3):
        assert TOPIC in topics(*ADMIN[:2]).topics
    with pytest.raises(RemotingError, match="No accessKey"):
        topics("", "")


def test_a_name_server_demands_it_too(demanding: Guarded) -> None:
    host = demanding.sim.host.seams
    config = NamesrvConfig(
        acl_enable=True, acl_directory="/conf", acl_requires_signed_time=True, acl_requires_tls=True
    )
    access = make_access(host, config, Networks(""))
    assert access is not None
    demanding.pass_time(1)

    def register(request: RemotingCommand, *, is_tls: bool = True) -> None:
        request.security = Security(is_tls=is_tls)
        access.validate(request, "10.0.0.1:5")

    request = RemotingCommand(RequestCode.REGISTER_BROKER, {"brokerName": "broker-a"})
    ours = timed(demanding).sign(request)
    register(ours)
    for refused, is_tls in ((ours, True), (sign(request, ADMIN), True), (ours, False)):
        with pytest.raises(AccessRefused):
            register(refused, is_tls=is_tls)
    assert {kind.value for kind, count in access.refused.items() if count} == {
        "replay",
        "aclRequiresSignedTime",
        "aclRequiresTls",
    }
