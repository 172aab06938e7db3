"""A running broker counts what clients do. Spec: remoting.md, section 7.5, appendix B16."""

import json
from typing import Any

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker


def told(broker: SimBroker, name: str, key: str) -> Any:
    """Sum and average over the last minute, as the broker answers."""
    ext = {"statsName": name, "statsKey": key}
    answer = broker.call(RemotingCommand(RequestCode.VIEW_BROKER_STATS_DATA, ext))
    if answer.code:
        return answer.remark
    minute = json.loads(answer.body or b"")["statsMinute"]
    return minute["sum"], minute["avgpt"]


def test_every_way_to_put_and_to_read_counts() -> None:
    """Runs, single delayed messages, their delivery, and pulls; forgotten with the topic."""
    broker = SimBroker().start()
    broker.world.clock.run_for(100)  # a time of day is no duration
    sends = [broker.ask(broker.message(b"x" * size)) for size in (10, 20, 30)]
    for sent in sends:
        assert broker.wait(sent).code == 0
    assert broker.call(broker.message(b"later", DELAY="1")).code == 0
    assert broker.pull().code == 0
    broker.world.clock.run_for(12)
    took = broker.call(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)).body or b""
    assert 0 <= int(json.loads(took)["table"]["putMessageEntireTimeMax"]) < 1000
    cluster = broker.configuration.broker.broker_cluster_name
    count, average = told(broker, "TOPIC_PUT_NUMS", TOPIC)
    assert (count, average) == (4, 1.0)  # the delayed one when it was delivered
    size, _ = told(broker, "TOPIC_PUT_SIZE", TOPIC)
    assert size > 4 * 91 + 60
    assert told(broker, "QUEUE_PUT_NUMS", f"{TOPIC}@0") == (3, 1.0)
    assert told(broker, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == (1, 1.0)
    delivered = "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"
    assert told(broker, "GROUP_GET_NUMS", delivered) == (1, 1.0)
    assert told(broker, "GROUP_GET_NUMS", f"{TOPIC}@consumers") == (3, 3.0)
    assert told(broker, "BROKER_PUT_NUMS", cluster) == (5, 0.0)
    assert told(broker, "BROKER_GET_NUMS", cluster) == (3, 0.0)
    assert told(broker, "GROUP_GET_FALL_TIME", f"0@{TOPIC}@consumers")[0] >= 0
    ext = {"groupName": "consumers", "removeOffset": "true"}
    assert broker.call(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)).code == 0
    gone = f"{TOPIC}@consumers"
    assert told(broker, "GROUP_GET_NUMS", gone) == f"The stats <GROUP_GET_NUMS> <{gone}> not exist"
    assert told(broker, "TOPIC_PUT_NUMS", TOPIC) == (4, 1.0)
    broker.stop()
