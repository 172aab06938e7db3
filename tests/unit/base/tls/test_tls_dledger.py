"""A DLedger group on the simulated network, whose members speak TLS with each other."""

from typing import Any

import pytest

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingError
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.dledger.codec import encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from rmq_ha.server.dledger.messages import MetadataRequest
from tests.sim_kit.group import GROUP, PEER_PORT, BrokerGroup
from tests.unit.base.tls.material import Files

ENFORCING = {"tls.ha.mode": "enforcing", "tls.ha.enable": "true"}
PERMISSIVE = {"tls.ha.mode": "permissive", "tls.ha.enable": "true"}


def make_group(seed: int, *modes: dict[str, str], root: str = "ours") -> BrokerGroup:
    """
    A group whose members have these settings; those that enforce verify each other.

    :param root: of the last one's certificate.
    """
    group = BrokerGroup(seed)
    for number, (member, mode) in enumerate(zip(group.members, modes, strict=True)):
        if not mode:
            continue
        files = Files()
        which = root if number == len(modes) - 1 else "ours"
        options = mode | files.put_pair(
            "tls.ha", member.host.ip, f"{member.host.name}.x", root=which
        )
        if mode is ENFORCING:
            options |= files.put_root("tls.ha") | {"tls.ha.allowedNames": "n0.x,n1.x,n2.x"}
        for path, data in files.items():
            member.host.seams.disk.replace(path, data)
        member.configuration.plugin_options.update(options)
    return group.start()


def ask(group: BrokerGroup, client: RemotingClient) -> Any:
    request = MetadataRequest(group=GROUP, remote_id="n0")
    frame = RemotingCommand(DLedgerRequestCode.METADATA, body=encode_body(request))
    address = f"{group.members[0].host.ip}:{PEER_PORT}"
    return group.wait(client.invoke(address, frame, 3000))


def client_of(group: BrokerGroup, *names: str, root: str = "ours") -> RemotingClient:
    """On the client's machine, with a certificate."""
    files = Files()
    options = {"tls.enable": "true", "tls.test.mode.enable": "false"}
    options |= files.put_pair("tls.client", *names, root=root) | files.put_root("tls.client")
    seams = group.world.hosts["client"].seams
    tls = ClientTls(options, files.read_bytes, seams.now_ms)
    return RemotingClient(seams, NettyClientConfig(), tls)


def test_a_group_agrees_over_tls_and_strangers_are_not_heard() -> None:
    """Plain, of another root, and of our root with a client's name."""
    group = make_group(31, ENFORCING, ENFORCING, ENFORCING)
    sent = [b"%d" % number for number in range(10)]
    assert [group.send(body) for body in sent] == [0] * 10
    group.run(2)
    assert [group.bodies(member) for member in group.members] == [sent] * 3
    for client in (
        group.client,
        client_of(group, "n0.x", root="theirs"),
        client_of(group, "client.example"),
    ):
        with pytest.raises(RemotingError):
            ask(group, client)
    assert ask(group, client_of(group, "n1.x")).code == 200


def test_a_member_of_another_root_takes_no_part() -> None:
    group = make_group(32, ENFORCING, ENFORCING, ENFORCING, root="theirs")
    assert group.send(b"a") == 0
    group.run(5)
    assert group.master() in group.members[:2]
    assert group.bodies(group.members[2]) == []


def test_a_group_is_changed_over_while_it_works() -> None:
    """Permissive beside plain members, as Java's are: calls to those are plain."""
    plain_calls = PERMISSIVE | {"tls.ha.enable": "false"}
    group = make_group(33, plain_calls, plain_calls, {})
    assert group.send(b"a") == 0
    group.run(2)
    assert [group.bodies(member) for member in group.members] == [[b"a"]] * 3
    both = make_group(34, PERMISSIVE, plain_calls, PERMISSIVE)
    assert both.send(b"a") == 0
    both.run(2)
    assert [both.bodies(member) for member in both.members] == [[b"a"]] * 3
