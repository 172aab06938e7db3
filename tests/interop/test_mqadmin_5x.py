"""
The commands of 5.x's mqadmin that operators use, at a broker of ours.

It runs with RMQ_HA_AUTH_MQADMIN=1; `test_mqadmin_all.py` compares every command of 4.9.7.
"""

from __future__ import annotations

import os

import pytest

from tests.interop.mqadmin_5x import Mqadmin
from tests.interop.rig import Rig
from tests.interop.test_controller import pytestmark as needs_peer

pytestmark = [
    needs_peer,
    pytest.mark.skipif("RMQ_HA_AUTH_MQADMIN" not in os.environ, reason="RMQ_HA_AUTH_MQADMIN=1"),
]


def test_the_main_commands(rig: Rig) -> None:
    namesrv = rig.namesrv()
    broker = rig.broker("master-async.conf", "m", namesrv=namesrv)
    n, b = ("-n", namesrv), ("-b", broker.address)
    cluster = "PeerCluster"
    mqadmin = Mqadmin(rig)
    steps = [
        (("clusterList", *n), "broker-a"),
        (("updateTopic", *n, *b, "-t", "Orders", "-r", "4", "-w", "4"), "success"),
        (("topicList", *n), "Orders"),
        (("topicRoute", *n, "-t", "Orders"), broker.address),
        (("sendMessage", *n, "-t", "Orders", "-p", "hello", "-k", "key1"), "SEND_OK"),
        (("topicStatus", *n, "-t", "Orders"), "broker-a"),
        (("queryMsgByKey", *n, "-t", "Orders", "-k", "key1"), "Message ID"),
        (("updateSubGroup", *n, *b, "-g", "billing"), "success"),
        (("brokerStatus", *n, *b), "bootTimestamp"),
        (("getBrokerConfig", *n, *b), "brokerName"),
        (("updateBrokerConfig", *n, *b, "-k", "fileReservedTime", "-v", "48"), "success"),
        (("statsAll", *n), "Orders"),
        (("brokerConsumeStats", *n, *b), "Diff"),
        (("producer", *n, *b), ""),
        (("getNamesrvConfig", *n), "listenPort"),
        (("wipeWritePerm", *n, "-b", "broker-a"), "broker-a"),
        (("addWritePerm", *n, "-b", "broker-a"), "broker-a"),
        (("exportMetadata", *n, "-c", cluster, "-f", str(rig.directory)), "success"),
        (("deleteSubGroup", *n, *b, "-g", "billing"), "success"),
        (("deleteTopic", *n, "-c", cluster, "-t", "Orders"), "success"),
        (("cleanExpiredCQ", *n, "-c", cluster), "success"),
        (("cleanUnusedTopic", *n, "-c", cluster), "success"),
    ]
    wrong = []
    try:
        for words, expected in steps:
            said = mqadmin(*words)
            if expected not in said or "Exception" in said:
                wrong.append(f"{' '.join(words)}: {said[-1500:]}")
    finally:
        mqadmin.close()
    assert not wrong, "\n".join(wrong)
