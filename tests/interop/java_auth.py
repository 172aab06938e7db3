"""
A Java 5.x broker with ACL 2.0 on, and what it answers to the requests of accounts.

`python -m tests.interop.java_auth` asks it again and writes `tests/vectors/auth/java-5.3.3.json`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire.command import RemotingCommand
from tests.interop.rig import REPO, SMALL, Rig, Server, rig_in
from tests.interop.test_controller import PEER5, ask

ROOT = Credentials("rootroot", "rootsecret")
VECTORS = REPO / "tests" / "vectors" / "auth" / "java-5.3.3.json"
_AUTH = "org.apache.rocketmq.auth"
SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": '{"username":"rootroot","password":"rootsecret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"rootroot","secretKey":"rootsecret"}',
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}


def broker_with_auth(rig: Rig, namesrv: str, name: str = "auth") -> Server:
    """Start a Java broker that lets in only `ROOT` and the users that it makes."""
    port = rig.ports(4) + 2
    directory = rig.directory / name
    directory.mkdir()
    command = [str(PEER5), "broker", "--quick", "--conf", str(SMALL / "master-async.conf")]
    command += ["--dir", str(directory), "--namesrv", namesrv]
    settings = {"listenPort": port, "authConfigPath": directory / "auth", **SETTINGS}
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    server = rig._start(command, f"127.0.0.1:{port}", directory, java=True)
    server.namesrv = namesrv
    return server


def signed(request: RemotingCommand, credentials: Credentials = ROOT) -> RemotingCommand:
    """The request as Java's clients sign it."""
    return sign(request, credentials)


def entry(resource: str, actions: str, decision: str = "Allow", ips: Any = None) -> dict[str, Any]:
    """One entry of a policy as mqadmin sends it."""
    return {
        "resource": resource,
        "actions": actions.split(","),
        "sourceIps": ips,
        "decision": decision,
    }


def acl(subject: str, *entries: dict[str, Any], kind: str | None = None) -> bytes:
    """The body of 3006 and 3007."""
    value = {"subject": subject, "policies": [{"policyType": kind, "entries": list(entries)}]}
    return json.dumps(value).encode()


def for_alice(*entries: dict[str, Any], kind: str | None = None) -> bytes:
    """The same for one user."""
    return acl("User:alice01", *entries, kind=kind)


def user(password: str | None = None, **more: str) -> bytes:
    """The body of 3001 and 3002."""
    return json.dumps({"password": password, **more}).encode()


ALICE = {"subject": "User:alice01"}
NOBODY = {"subject": "User:nobody1"}
REQUESTS: list[tuple[str, int, dict[str, str], bytes | None]] = [
    ("a user", 3001, {"username": "alice01"}, user("alicepass", userType="Normal")),
    ("the user again", 3001, {"username": "alice01"}, user("otherpass")),
    ("a user without a type", 3001, {"username": "bob0001"}, user("bobspass1")),
    ("a user without a password", 3001, {"username": "carol01"}, user()),
    ("a user without a name", 3001, {"username": ""}, user("nobodys1")),
    ("a super user", 3001, {"username": "admin02"}, user("adminpass", userType="Super")),
    ("the user, got", 3004, {"username": "alice01"}, None),
    ("no such user, got", 3004, {"username": "nobody1"}, None),
    ("no name, got", 3004, {}, None),
    ("all users", 3005, {}, None),
    ("users by a part of the name", 3005, {"filter": "lic"}, None),
    ("no user has that part", 3005, {"filter": "zzz"}, None),
    ("a password, changed", 3002, {"username": "bob0001"}, user("bobspass2")),
    ("no such user, changed", 3002, {"username": "nobody1"}, user("nobodys1")),
    ("a status, changed", 3002, {"username": "bob0001"}, user(userStatus="disable")),
    ("the user, disabled", 3004, {"username": "bob0001"}, None),
    ("acl of a user without one", 3009, ALICE, None),
    ("acl of no user", 3009, NOBODY, None),
    ("an acl", 3006, ALICE, for_alice(entry("Topic:A", "Pub"))),
    ("the acl, got", 3009, ALICE, None),
    (
        "an entry more",
        3006,
        ALICE,
        for_alice(entry("Group:g", "Sub"), entry("Topic:B", "Pub,Sub", "Deny")),
    ),
    (
        "an entry, changed",
        3007,
        ALICE,
        for_alice(entry("Topic:A", "Pub,Sub")),
    ),
    (
        "a default",
        3007,
        ALICE,
        for_alice(entry("Topic:*", "Sub"), kind="Default"),
    ),
    ("the acl with a default", 3009, ALICE, None),
    ("all acls", 3010, {}, None),
    ("acls by user", 3010, {"subjectFilter": "alice"}, None),
    ("acls by resource", 3010, {"resourceFilter": "Group"}, None),
    ("acls of nobody", 3010, {"subjectFilter": "zzz"}, None),
    (
        "acl for nobody",
        3006,
        {"subject": "User:nobody1"},
        acl("User:nobody1", entry("Topic:A", "Pub")),
    ),
    ("no resource", 3006, ALICE, for_alice(entry("Bad:A", "Pub"))),
    ("no action", 3006, ALICE, for_alice(entry("Topic:A", "Bad"))),
    (
        "no decision",
        3006,
        ALICE,
        for_alice(entry("Topic:A", "Pub", "x")),
    ),
    (
        "no address",
        3006,
        ALICE,
        for_alice(entry("Topic:A", "Pub", ips=["x"])),
    ),
    ("any action", 3006, ALICE, for_alice(entry("Topic:A", "Any"))),
    ("an empty acl", 3006, ALICE, b'{"policies":[]}'),
    ("an entry, deleted", 3008, {"subject": "User:alice01", "resource": "Topic:A"}, None),
    ("an entry that is not there", 3008, {"subject": "User:alice01", "resource": "Topic:Z"}, None),
    ("the acl without it", 3009, ALICE, None),
    ("the whole acl, deleted", 3008, ALICE, None),
    ("the acl again, deleted", 3008, ALICE, None),
    ("acl of nobody, deleted", 3008, NOBODY, None),
    ("a user, deleted", 3003, {"username": "alice01"}, None),
    ("no such user, deleted", 3003, {"username": "alice01"}, None),
    ("all that are left", 3005, {}, None),
]


def conversation(address: str, credentials: Credentials = ROOT) -> list[dict[str, Any]]:
    """Ask everything; what was asked and answered."""
    told = []
    for what, code, ext, body in REQUESTS:
        answer = ask(address, signed(RemotingCommand(code, dict(ext), body), credentials))
        told.append(
            {
                "what": what,
                "code": code,
                "ext": ext,
                "body": body and body.decode(),
                "answer": answer.code,
                "remark": answer.remark,
                "answered": answer.body.decode() if answer.body else None,
            }
        )
    return told


def main() -> int:
    """Record."""
    with tempfile.TemporaryDirectory() as directory, rig_in(Path(directory)) as rig:
        namesrv = rig.namesrv()
        told = conversation(broker_with_auth(rig, namesrv).address)
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
