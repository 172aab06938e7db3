"""The descriptions in a broker's audit log of requests that change something."""

from collections.abc import Callable

from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.remoting.audit import Act, Describe, by_header, changed_configuration
from rmq_ha.base.wire.auth_bodies import AclInfo
from rmq_ha.base.wire.bodies import read_as
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.members import to_members
from rmq_ha.base.wire.pop_bodies import RequestMode

_TOPIC = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag", "attributes")
_ACCOUNT = ("admin", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
_PERMS = ("topicPerms", "groupPerms", "secretKey")


Find = Callable[[str], object | None]


def acts(topic: Find, group: Find) -> dict[int, Describe]:
    """
    Return by request code the function that describes a request for the audit log.

    :param topic: returns the topic of a name before the request is served; None if there is none.
    :param group: returns the group of a name before the request is served; None if there is none.
    """

    def set_topic(request: RemotingCommand) -> Act:
        verb = _set(topic, (request.ext or {}).get("topic", ""))
        return by_header(verb, "topic", "topic", *_TOPIC)(request)

    def set_group(request: RemotingCommand) -> Act:
        config = read_as(SubscriptionGroupConfig, request.body or b"")
        name = str(config.group_name)
        return Act(_set(group, name), "group", name, to_members(config))

    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: set_topic,
        RequestCode.DELETE_TOPIC_IN_BROKER: by_header("deleted", "topic", "topic"),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: set_group,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: by_header(
            "deleted", "group", "groupName", "removeOffset"
        ),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: by_header(
            "reset", "offsets of group", "group", "topic", "timestamp", "isForce"
        ),
        RequestCode.SET_MESSAGE_REQUEST_MODE: _set_mode,
        RequestCode.CLONE_GROUP_OFFSET: by_header(
            "cloned", "offsets to group", "destGroup", "srcGroup", "topic", "offline"
        ),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: by_header(
            "had consumed again", "message", "msgId", "consumerGroup", "clientId"
        ),
        RequestCode.HAND_OVER_PAIR: by_header("handed over to", "broker", "to"),
        RequestCode.RESUME_CHECK_HALF_MESSAGE: by_header("revived", "half message", "msgId"),
        RequestCode.UPDATE_BROKER_CONFIG: changed_configuration,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: by_header(
            "set", "account", "accessKey", *_ACCOUNT, *_PERMS
        ),
        RequestCode.DELETE_ACL_CONFIG: by_header("deleted", "account", "accessKey"),
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: by_header(
            "set", "white addresses", "globalWhiteAddrs", "aclFileFullPath"
        ),
        RequestCode.AUTH_CREATE_USER: by_header("created", "account", "username"),
        RequestCode.AUTH_UPDATE_USER: by_header("changed", "account", "username"),
        RequestCode.AUTH_DELETE_USER: by_header("deleted", "account", "username"),
        RequestCode.AUTH_CREATE_ACL: _set_policies,
        RequestCode.AUTH_UPDATE_ACL: _set_policies,
        RequestCode.AUTH_DELETE_ACL: by_header(
            "deleted", "permissions of account", "subject", "resource"
        ),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: lambda _: Act("cleaned", "queues", "expired"),
        RequestCode.CLEAN_UNUSED_TOPIC: lambda _: Act("cleaned", "queues", "of unused topics"),
        RequestCode.DELETE_EXPIRED_COMMITLOG: lambda _: Act(
            "cleaned", "commit log", "expired files"
        ),
    }


def _set_mode(request: RemotingCommand) -> Act:
    mode = request.read(RequestMode.decode)
    changed = {"topic": mode.topic, "mode": mode.mode, "popShareQueueNum": mode.pop_share_queue_num}
    return Act("set", "mode of group", mode.consumer_group, changed)


def _set_policies(request: RemotingCommand) -> Act:
    given = read_as(AclInfo, request.body or b"{}")
    rules = [
        f"{entry.decision} {'|'.join(entry.actions or ())} {entry.resource}"
        for policy in given.policies or ()
        for entry in policy.entries or ()
    ]
    name = (request.ext or {}).get("subject", "")
    return Act("set", "permissions of account", name, {"rules": ", ".join(rules)})


def _set(find: Find, name: str) -> str:
    return "created" if find(name) is None else "changed"
