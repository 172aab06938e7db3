"""The table of permissions: the needs of each request to the account that signed it (`aclStrict`).

A code that is not in the table is refused. docs/security.md shows the table.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmq_ha.base.errors import CorruptRecord, RequestRejected
from rmq_ha.base.model.message import place_of
from rmq_ha.base.model.pop_topics import original_topic
from rmq_ha.base.model.properties import PGROUP, REAL_TOPIC, TRAN_MSG, decode_properties
from rmq_ha.base.model.topics import HALF_TOPIC, RETRY_PREFIX
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.wire.bodies import CheckClient, LockBatch
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import AssignmentQuery, BatchAck
from rmq_ha.server.acl.needs import Ext, Need, heartbeat, subscribed
from rmq_ha.server.acl.permissions import ADMIN, PUB, SUB, group_resource

NEEDS_ADMIN: Need = ("", ADMIN)

RecordAt = Callable[[int], bytes | None]
"""Returns the record that starts at a physical offset; None if there is none."""

_HALF_MARK = f"{TRAN_MSG}\x01"
_NO_EXT: Ext = {}


class RequestFacts(NamedTuple):
    """
    A request, as the rules of the table see it.

    :ivar ext: its header fields; empty if it has none.
    :ivar record_at: returns the record that starts at a physical offset.
    """

    request: RemotingCommand
    ext: Ext
    record_at: RecordAt

    def field(self, name: str) -> str:
        """
        Return a header field that a request must have. A missing field is never replaced by a
        default.

        :raises RequestRejected: the field is missing.
        """
        value = self.ext.get(name)
        if value is None:
            raise self.refusal(f"the header field {name} is missing")
        return value

    def refusal(self, reason: str) -> RequestRejected:
        """Return the refusal of a request whose needs nobody can know, as it cannot be read."""
        return RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"AclException: request {self.request.code}: {reason}"
        )

    def record(self, physical_offset: int | None) -> Record | None:
        """
        Return the record at a physical offset; None if no record starts there, so that the request
        could read nothing.
        """
        data = None if physical_offset is None else self.record_at(physical_offset)
        try:
            return decode_record(data) if data else None
        except CorruptRecord:
            return None


class AccessNeed(NamedTuple):
    """
    A rule of the table: one need of a request.

    :ivar text: the need in words, for people.
    :ivar needs: returns each resource that a request uses, with the permission that it needs.
    """

    text: str
    needs: Callable[[RequestFacts], list[Need]]


def needs_of(request: RemotingCommand, record_at: RecordAt) -> list[Need]:
    """
    Return every permission that a request needs; all of them must be granted.

    :param record_at: reads the broker's log.
    :raises RequestRejected: the request has no row, or cannot be read.
    """
    rules = TABLE.get(request.code)
    if rules is None:
        raise RequestRejected(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported: it is not in the table of permissions "
            "(aclStrict=true)",
        )
    asked = RequestFacts(request, request.ext or _NO_EXT, record_at)
    return [need for rule in rules for need in rule.needs(asked)]


# ------------------------------------------------------------ rules


def _topic(name: str = "topic", permission: int = SUB) -> AccessNeed:
    words = {SUB: "SUB", PUB: "PUB"}.get(permission, "PUB or SUB")
    return AccessNeed(f"{words} on its topic", lambda asked: [(asked.field(name), permission)])


def _group(name: str, permission: int = SUB, what: str = "group") -> AccessNeed:
    word = "SUB" if permission == SUB else "PUB"
    return AccessNeed(
        f"{word} on its {what}", lambda asked: [(group_resource(asked.field(name)), permission)]
    )


def _if_named(name: str, rule: AccessNeed) -> AccessNeed:
    """Make a rule that applies only if a header field is there."""
    return AccessNeed(
        f"{rule.text}, if the request names one",
        lambda asked: rule.needs(asked) if asked.ext.get(name, "").strip() else [],
    )


def _send(
    topic_field: str, group_field: str, producer_field: str, properties_field: str
) -> AccessNeed:
    """
    Make the rule of a send; the parameters are the names of the header fields to read.

    A send to a retry topic needs SUB on that topic's group, and on the group that the sender names.
    A half message also needs PUB on its producer group, as brokers show it to that group when they
    ask how the transaction ended.
    """

    def needs(asked: RequestFacts) -> list[Need]:
        ext, topic = asked.ext, asked.field(topic_field)
        resources = [(topic, PUB)]
        if topic.startswith(RETRY_PREFIX):
            resources = [(topic, SUB)]
            if group_field in ext:
                resources.append((group_resource(ext[group_field]), SUB))
        properties = ext.get(properties_field, "")
        if _HALF_MARK in properties:
            producers = decode_properties(properties).get(PGROUP) or asked.field(producer_field)
            resources.append((group_resource(producers), PUB))
        return resources

    return AccessNeed(
        "PUB on its topic; a retry topic: SUB on its group and on the sender's; "
        "a half message: also PUB on its producer group",
        needs,
    )


def _record_by_offset(asked: RequestFacts) -> list[Need]:
    """
    Return the need of a request that names a record only by its offset: SUB on the record's topic.
    Without such a record nothing is needed.
    """
    return _read(asked.record(_number(asked, "offset")))


def _record_sent_back(asked: RequestFacts) -> list[Need]:
    """Return `_record_by_offset`; a retry topic of the group's pops counts as its own topic."""
    group = asked.field("group")
    return [(original_topic(group, topic), need) for topic, need in _record_by_offset(asked)]


def _view_needs(asked: RequestFacts) -> list[Need]:
    return _record_by_offset(asked) or [NEEDS_ADMIN]


def _record_by_id(asked: RequestFacts) -> list[Need]:
    return _read(asked.record(place_of(asked.field("msgId"))))


def _half_message(asked: RequestFacts) -> list[Need]:
    record = asked.record(_number(asked, "commitLogOffset"))
    if record is None or record.topic != HALF_TOPIC:
        return []  # without a half message, nothing can be ended
    return [(record.properties.get(REAL_TOPIC, HALF_TOPIC), PUB)]


def _read(record: Record | None) -> list[Need]:
    return [] if record is None else [(record.topic, SUB)]


def _number(asked: RequestFacts, name: str) -> int:
    try:
        return int(asked.field(name)[:20])
    except ValueError:
        raise asked.refusal(f"the header field {name} is no number") from None


def _locks(asked: RequestFacts) -> list[Need]:
    batch = asked.request.read(LockBatch.decode)
    topics = dict.fromkeys([queue.topic for queue in batch.queues])
    return [(group_resource(batch.consumer_group), SUB), *[(topic, SUB) for topic in topics]]


def _check_client(asked: RequestFacts) -> list[Need]:
    check = asked.request.read(CheckClient.decode)
    needs = [(group_resource(check.group), SUB)]
    return (
        needs
        if check.subscription is None
        else [
            *needs,
            subscribed(check.subscription, check.group),
        ]
    )


def _pop_needs(asked: RequestFacts) -> list[Need]:
    """
    Return the needs of a request of pop consumption that names a group and a topic.

    A retry topic of the group holds copies of another topic's messages. So the request needs SUB on
    that other topic.
    """
    group = asked.field("consumerGroup")
    topic = original_topic(group, asked.field("topic"))
    return [(group_resource(group), SUB), (topic, SUB)]


def _batch_ack(asked: RequestFacts) -> list[Need]:
    acks = asked.request.read(BatchAck.decode).acks
    pairs = dict.fromkeys([(item.consumer_group, item.topic) for item in acks])
    return [
        need
        for group, topic in pairs
        for need in ((group_resource(group), SUB), (original_topic(group, topic), SUB))
    ]


def _assignment(asked: RequestFacts) -> list[Need]:
    query = asked.request.read(AssignmentQuery.decode)
    topic = original_topic(query.consumer_group, query.topic)
    return [(group_resource(query.consumer_group), SUB), (topic, SUB)]


_ADMIN = (AccessNeed("admin", lambda _: [NEEDS_ADMIN]),)
_BOUNDS = (_topic(permission=PUB | SUB),)
_LOCKS = (AccessNeed("SUB on its group and on the topics of its queues", _locks),)
_POP = (
    AccessNeed(
        "SUB on its group and topic; a retry topic of pops: on the topic that it is for", _pop_needs
    ),
)
_RECORD = "SUB on the topic of the record, which a queue has to have"
_SEND = (_send("topic", "group", "producerGroup", "properties"),)
_SEND_V2 = (_send("b", "a", "a", "i"),)
_PROGRESS = _POP
_GROUPS_PROGRESS = (_group("group"), _topic())

TABLE: Mapping[int, tuple[AccessNeed, ...]] = {
    RequestCode.SEND_MESSAGE: _SEND,
    RequestCode.SEND_MESSAGE_V2: _SEND_V2,
    RequestCode.SEND_BATCH_MESSAGE: _SEND_V2,
    RequestCode.SEND_REPLY_MESSAGE: _SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SEND_V2,
    RequestCode.RECALL_MESSAGE: (_topic(permission=PUB),),
    RequestCode.PULL_MESSAGE: _PROGRESS,
    RequestCode.POP_MESSAGE: _POP,
    RequestCode.ACK_MESSAGE: _POP,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    RequestCode.BATCH_ACK_MESSAGE: (
        AccessNeed("SUB on the groups and topics that it names", _batch_ack),
    ),
    RequestCode.PEEK_MESSAGE: _POP,
    RequestCode.NOTIFICATION: _POP,
    RequestCode.POLLING_INFO: _POP,
    RequestCode.QUERY_ASSIGNMENT: (AccessNeed("SUB on its group and topic", _assignment),),
    RequestCode.QUERY_CONSUMER_OFFSET: _PROGRESS,
    RequestCode.UPDATE_CONSUMER_OFFSET: _PROGRESS,
    RequestCode.QUERY_MESSAGE: (_topic(),),
    RequestCode.VIEW_MESSAGE_BY_ID: (
        AccessNeed(
            "SUB on the topic of the record; admin, if no queue has an entry for it",
            _view_needs,
        ),
    ),
    RequestCode.HEART_BEAT: (
        AccessNeed(
            "SUB on its consumer groups and on the topics that they subscribe; producer groups "
            "without PUB are registered, but not asked about transactions",
            lambda asked: heartbeat(asked.request),
        ),
    ),
    RequestCode.UNREGISTER_CLIENT: (_if_named("consumerGroup", _group("consumerGroup")),),
    RequestCode.CHECK_CLIENT_CONFIG: (AccessNeed("SUB on its group and topic", _check_client),),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (_group("consumerGroup"),),
    RequestCode.CONSUMER_SEND_MSG_BACK: (_group("group"), AccessNeed(_RECORD, _record_sent_back)),
    RequestCode.END_TRANSACTION: (
        _group("producerGroup", PUB, "producer group"),
        AccessNeed("PUB on the topic that the half message is for", _half_message),
    ),
    RequestCode.LOCK_BATCH_MQ: _LOCKS,
    RequestCode.UNLOCK_BATCH_MQ: _LOCKS,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _BOUNDS,
    RequestCode.GET_MAX_OFFSET: _BOUNDS,
    RequestCode.GET_MIN_OFFSET: _BOUNDS,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _BOUNDS,
    RequestCode.GET_TOPIC_STATS_INFO: _BOUNDS,
    RequestCode.GET_TOPIC_CONFIG: _BOUNDS,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (_group("group"),),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (_group("consumerGroup"),),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: (_group("producerGroup", PUB, "producer group"),),
    RequestCode.GET_CONSUME_STATS: (_group("consumerGroup"), _if_named("topic", _topic())),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _GROUPS_PROGRESS,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _GROUPS_PROGRESS,
    RequestCode.QUERY_CONSUME_TIME_SPAN: _GROUPS_PROGRESS,
    RequestCode.GET_CONSUMER_RUNNING_INFO: (_group("consumerGroup"),),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (
        _group("consumerGroup"),
        AccessNeed(_RECORD, _record_by_id),
    ),
    RequestCode.CLONE_GROUP_OFFSET: (
        AccessNeed(
            "SUB on both groups and on its topic; admin, if the request names no topic",
            lambda asked: [
                (group_resource(asked.field("srcGroup")), SUB),
                (group_resource(asked.field("destGroup")), SUB),
                (asked.ext["topic"].strip(), SUB)
                if asked.ext.get("topic", "").strip()
                else NEEDS_ADMIN,
            ],
        ),
    ),
    RequestCode.UPDATE_AND_CREATE_TOPIC: _ADMIN,
    RequestCode.GET_ALL_TOPIC_CONFIG: _ADMIN,
    RequestCode.DELETE_TOPIC_IN_BROKER: _ADMIN,
    RequestCode.UPDATE_BROKER_CONFIG: _ADMIN,
    RequestCode.GET_BROKER_CONFIG: _ADMIN,
    RequestCode.GET_BROKER_RUNTIME_INFO: _ADMIN,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _ADMIN,
    RequestCode.GET_ALL_DELAY_OFFSET: _ADMIN,
    RequestCode.GET_TIMER_CHECK_POINT: _ADMIN,
    RequestCode.GET_TIMER_METRICS: _ADMIN,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _ADMIN,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _ADMIN,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: _ADMIN,
    RequestCode.DELETE_ACL_CONFIG: _ADMIN,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: _ADMIN,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _ADMIN,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: _ADMIN,
    RequestCode.AUTH_CREATE_USER: _ADMIN,
    RequestCode.AUTH_UPDATE_USER: _ADMIN,
    RequestCode.AUTH_DELETE_USER: _ADMIN,
    RequestCode.AUTH_GET_USER: _ADMIN,
    RequestCode.AUTH_LIST_USER: _ADMIN,
    RequestCode.AUTH_CREATE_ACL: _ADMIN,
    RequestCode.AUTH_UPDATE_ACL: _ADMIN,
    RequestCode.AUTH_DELETE_ACL: _ADMIN,
    RequestCode.AUTH_GET_ACL: _ADMIN,
    RequestCode.AUTH_LIST_ACL: _ADMIN,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _ADMIN,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _ADMIN,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _ADMIN,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _ADMIN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _ADMIN,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _ADMIN,
    RequestCode.QUERY_CORRECTION_OFFSET: _ADMIN,
    RequestCode.VIEW_BROKER_STATS_DATA: _ADMIN,
    RequestCode.CLEAN_UNUSED_TOPIC: _ADMIN,
    RequestCode.GET_BROKER_CONSUME_STATS: _ADMIN,
    RequestCode.QUERY_CONSUME_QUEUE: _ADMIN,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _ADMIN,
    RequestCode.GET_ALL_PRODUCER_INFO: _ADMIN,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _ADMIN,
    RequestCode.EXCHANGE_BROKER_HA_INFO: _ADMIN,
    RequestCode.GET_BROKER_HA_STATUS: _ADMIN,
    RequestCode.GET_BROKER_EPOCH_CACHE: _ADMIN,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: _ADMIN,
    RequestCode.HAND_OVER_PAIR: _ADMIN,
    RequestCode.TAKE_OVER_PAIR: _ADMIN,
    RequestCode.RELAY_CLIENT: _ADMIN,
}
