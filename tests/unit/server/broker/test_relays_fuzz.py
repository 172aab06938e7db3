"""Whatever operators ask and clients answer, there is a response. Spec: remoting.md, 1.7."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from tests.kits.draws import draws
from tests.unit.server.broker.sim_broker import SimBroker
from tests.unit.server.broker.sim_client import SimClient
from tests.unit.server.broker.test_processor_fuzz import VALUES

CODES = [222, 223, 303, 307, 308, 309, 314, 321, 324, 325]
NAMES = [
    *("topic", "group", "timestamp", "isForce", "clientAddr", "consumerGroup", "clientId"),
    *("msgId", "filterGroups", "compareGroup", "srcGroup", "destGroup", "offline", "queueId"),
    *("index", "count", "properties", "producerGroup", "defaultTopic", "sysFlag"),
    *("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"),
]
TEXTS = st.one_of(
    VALUES, st.sampled_from(["T", "g", "c1", "g,h", "00" * 16, "REPLY_TO_CLIENT\x01c1"])
)
EXT = st.one_of(st.none(), st.dictionaries(st.sampled_from(NAMES), TEXTS, max_size=10))
ANSWERS = st.builds(
    RemotingCommand,
    st.integers(-3, 300),
    st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
    st.none()
    | st.binary(max_size=40)
    | st.sampled_from(
        [b'{"messageQueueTable":[1]}', b'{"messageQueueTable":{{}:"x"}}', b"{", b"[]", b"null"]
    ),
    remark=st.none() | st.text(max_size=5),
)


@pytest.fixture(scope="module")
def world() -> Any:
    broker = SimBroker().start()
    broker.broker.topics.update(TopicConfig("T", 2, 2))
    for queue_id in (0, 1):
        broker.broker.consumer_offsets.commit("g", "T", queue_id, 0)
    yield broker, SimClient(broker)
    broker.stop()


@settings(max_examples=draws(150), deadline=None)
@given(st.sampled_from(CODES), EXT, st.none() | st.binary(max_size=20), ANSWERS)
def test_every_request_is_answered(
    world: Any, code: int, ext: Any, body: bytes | None, answer: RemotingCommand
) -> None:
    """With a response that fits a frame; never with a fault of ours."""
    broker, client = world
    for pushed in (221, 307, 309, 326):
        client.answers[pushed] = answer
    inner = broker.broker
    channel = inner.consumers.find_client("g", "c1").channel
    request = RemotingCommand(code, ext, body, 7)
    try:
        response = inner.dispatcher.routes[code](channel, request)
    except RequestRejected as rejected:
        response = request.response(rejected.code, rejected.remark)
    if not isinstance(response, RemotingCommand):

        def rejection(failure: Any) -> RemotingCommand:
            failure.trap(RequestRejected)
            return request.response(failure.value.code, failure.value.remark)

        response = broker.wait(response.addErrback(rejection))
    assert encode_frame(response)
