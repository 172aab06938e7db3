"""
The metrics of rocketmq-exporter that apply to rmq-ha, so that its dashboards work.

Its metrics of thread pools do not apply: rmq-ha has no such pools.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from rmq_ha.ops.app.status.samples import MetricDescription, MetricKind, Samples

RUNTIME_LABELS = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_BROKER_LABELS = ("cluster", "brokerIP", "broker")
_TOPIC_LABELS = ("cluster", "broker", "topic")
_GROUP_LABELS = (*_TOPIC_LABELS, "group")
_DIFF_LABELS = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_WINDOWS = (10, 60, 600)
_BUCKET = re.compile(r"\[([^\]]*)\]:([0-9]+)")


class _Runtime(NamedTuple):
    """
    A metric from the table of GET_BROKER_RUNTIME_INFO.

    :ivar place: index of the number, if the value has several.
    """

    key: str
    unit: str
    meaning: str
    place: int | None = None


def _tps(prefix: str, key: str, what: str) -> dict[str, _Runtime]:
    return {
        f"{prefix}_tps{seconds}": _Runtime(key, "1/s", f"{what}, over {seconds} s", index)
        for index, seconds in enumerate(_WINDOWS)
    }


_RUNTIME: dict[str, _Runtime] = {
    "msg_put_total_today_now": _Runtime("msgPutTotalTodayNow", "messages", "Put since the start"),
    "msg_gettotal_today_now": _Runtime("msgGetTotalTodayNow", "messages", "Read since the start"),
    "msg_puttotal_todaymorning": _Runtime(
        "msgPutTotalTodayMorning", "messages", "Put until last midnight"
    ),
    "msg_gettotal_todaymorning": _Runtime(
        "msgGetTotalTodayMorning", "messages", "Read until last midnight"
    ),
    "msg_puttotal_yesterdaymorning": _Runtime(
        "msgPutTotalYesterdayMorning", "messages", "Put until the midnight before"
    ),
    "msg_gettotal_yesterdaymorning": _Runtime(
        "msgGetTotalYesterdayMorning", "messages", "Read until the midnight before"
    ),
    "putmessage_times_total": _Runtime("putMessageTimesTotal", "messages", "Put since the start"),
    "put_message_size_total": _Runtime("putMessageSizeTotal", "bytes", "Put since the start"),
    "put_message_average_size": _Runtime("putMessageAverageSize", "bytes", "Of a message"),
    "putmessage_entire_time_max": _Runtime(
        "putMessageEntireTimeMax", "milliseconds", "The slowest put since the start"
    ),
    "getmessage_entire_time_max": _Runtime(
        "getMessageEntireTimeMax", "milliseconds", "The slowest read since the start"
    ),
    "put_latency_99": _Runtime("putLatency99", "milliseconds", "99 % of the last minute's puts"),
    "put_latency_999": _Runtime(
        "putLatency999", "milliseconds", "99.9 % of the last minute's puts"
    ),
    "earliest_message_timestamp": _Runtime(
        "earliestMessageTimeStamp", "milliseconds", "Store time of the oldest message; -1: none"
    ),
    "start_accept_sendrequest_time": _Runtime(
        "startAcceptSendRequestTimeStamp", "milliseconds", "Sends are refused before"
    ),
    "dispatch_behind_bytes": _Runtime("dispatchBehindBytes", "bytes", "Not yet in the queues"),
    "dispatch_maxbuffer": _Runtime("dispatchMaxBuffer", "records", "Waiting for their turn"),
    "commitlog_minoffset": _Runtime("commitLogMinOffset", "bytes", "Start of the log"),
    "commitlog_maxoffset": _Runtime("commitLogMaxOffset", "bytes", "End of the log"),
    "commitlog_disk_ratio": _Runtime("commitLogDiskRatio", "0 to 1", "How full its disk is"),
    "consumequeue_disk_ratio": _Runtime("consumeQueueDiskRatio", "0 to 1", "How full its disk is"),
    **_tps("put", "putTps", "Messages put"),
    **_tps("getfound", "getFoundTps", "Pulls that found something"),
    **_tps("getmiss", "getMissTps", "Pulls that found nothing"),
    **_tps("gettotal", "getTotalTps", "Pulls"),
    **_tps("gettransfered", "getTransferedTps", "Messages read"),
}
_BUCKETS = {
    "<=0ms": "0ms",
    "0~10ms": "0to10ms",
    "10~50ms": "10to50ms",
    "50~100ms": "50to100ms",
    "100~200ms": "100to200ms",
    "200~500ms": "200to500ms",
    "500ms~1s": "500to1s",
    "1~2s": "1to2s",
    "2~3s": "2to3s",
    "3~4s": "3to4s",
    "4~5s": "4to5s",
    "5~10s": "5to10s",
    "10s~": "10stomore",
}


def _gauge(name: str, unit: str, labels: tuple[str, ...], meaning: str) -> MetricDescription:
    return MetricDescription(f"rocketmq_{name}", MetricKind.GAUGE, unit, labels, meaning)


EXPORTER: tuple[MetricDescription, ...] = (
    _gauge("broker_tps", "1/s", _BROKER_LABELS, "Messages put, over a minute"),
    _gauge("broker_qps", "1/s", _BROKER_LABELS, "Messages read, over a minute"),
    _gauge("producer_tps", "1/s", _TOPIC_LABELS, "Messages put, over a minute"),
    _gauge("producer_message_size", "bytes/s", _TOPIC_LABELS, "Put, over a minute"),
    _gauge("producer_offset", "messages", _TOPIC_LABELS, "Ends of a topic's queues, summed up"),
    _gauge("topic_retry_offset", "messages", _TOPIC_LABELS, "The same of a retry topic"),
    _gauge(
        "topic_dlq_offset",
        "messages",
        ("cluster", "broker", "group"),
        "The same of a group's dead letters",
    ),
    _gauge("consumer_tps", "1/s", _GROUP_LABELS, "Messages read, over a minute"),
    _gauge("consumer_message_size", "bytes/s", _GROUP_LABELS, "Read, over a minute"),
    _gauge("send_back_nums", "1/s", _GROUP_LABELS, "Messages given back, over a minute"),
    _gauge("group_diff", "messages", _DIFF_LABELS, "Not yet committed by the group"),
    _gauge("group_retrydiff", "messages", _DIFF_LABELS, "The same of its retry topic"),
    _gauge(
        "brokeruntime_commitlogdir_capacity_total", "bytes", RUNTIME_LABELS, "Of the log's disk"
    ),
    _gauge("brokeruntime_commitlogdir_capacity_free", "bytes", RUNTIME_LABELS, "Of the log's disk"),
    *(
        _gauge(f"brokeruntime_{name}", item.unit, RUNTIME_LABELS, item.meaning)
        for name, item in _RUNTIME.items()
    ),
    *(
        _gauge(
            f"brokeruntime_pmdt_{name}",
            "messages",
            RUNTIME_LABELS,
            f"Put in {bucket}, of the last full minute",
        )
        for bucket, name in _BUCKETS.items()
    ),
)


def collect_runtime(samples: Samples, info: Mapping[str, str]) -> None:
    """
    Add the numbers of brokerStatus to a scrape.

    :param info: the table of GET_BROKER_RUNTIME_INFO; missing values and those without a number are
        left out.
    """
    for name, item in _RUNTIME.items():
        text = info.get(item.key, "")
        if item.place is not None:
            parts = text.split()
            text = parts[item.place] if item.place < len(parts) else ""
        samples.add(f"rocketmq_brokeruntime_{name}", _number(text))
    for bucket, count in _BUCKET.findall(info.get("putMessageDistributeTime", "")):
        if bucket in _BUCKETS:
            samples.add(f"rocketmq_brokeruntime_pmdt_{_BUCKETS[bucket]}", float(count))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
