"""TLS and accounts."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta

import trustme

from tests.mistakes.bench import Bench
from tests.mistakes.mistake import Room
from tests.mistakes.rooms.files import check

DOORS = Room("Certificates and accounts")
TLS = """\
tls.test.mode.enable=false
tls.server.mode=enforcing
tls.server.certPath=s.pem
tls.server.keyPath=s.key
"""
ACCOUNTS = """\
accounts:
- accessKey: adminkey
  secretKey: 12345678
  admin: true
- accessKey: shopuser
  secretKey: 12345678
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
"""


def certificate(bench: Bench, prefix: str = "s", days: float = 365) -> trustme.CA:
    authority = trustme.CA()
    ends = datetime.now(UTC) + timedelta(days=days)
    begins = min(datetime.now(UTC), ends) - timedelta(days=1)
    made = authority.issue_cert("127.0.0.1", "localhost", not_before=begins, not_after=ends)
    pem = b"".join(item.bytes() for item in made.cert_chain_pems)
    (bench.directory / f"{prefix}.pem").write_bytes(pem)
    (bench.directory / f"{prefix}.key").write_bytes(made.private_key_pem.bytes())
    authority.cert_pem.write_to_path(bench.path(f"{prefix}-ca.pem"))
    return authority


@DOORS.add(
    "a missing certificate file",
    cause="No such file",
    fix="readable for this user",
    then="A",
)
def no_certificate(bench: Bench) -> str:
    return check(bench, TLS)


@DOORS.add(
    "the key of another certificate",
    cause="is not the key of",
    fix="the first in its file",
    then="A",
)
def other_key(bench: Bench) -> str:
    certificate(bench)
    certificate(bench, "o")
    return check(bench, TLS.replace("s.key", "o.key"))


@DOORS.add("an expired certificate", cause="ended at", fix="renew it", then="A/C")
def ended(bench: Bench) -> str:
    certificate(bench, days=-3)
    return check(bench, TLS)


@DOORS.add("a certificate that ends in 20 days", cause="ends in", fix="renew it", then="A")
def ends(bench: Bench) -> str:
    certificate(bench, days=20.5)
    return check(bench, TLS)


@DOORS.add(
    "a client without TLS at a port that wants it",
    cause="lost the connection to 127.0.0.1:10911",
    fix="--tls",
    then="A/B",
)
def plain_client(bench: Bench) -> str:
    certificate(bench)
    bench.broker(TLS)
    return bench.run("rmqha-admin", "broker", "status", bench.at("broker"))


@DOORS.add(
    "--tls-ca names the root of another authority",
    cause="signed by no root",
    fix="--tls-ca",
    then="A",
)
def other_root(bench: Bench) -> str:
    certificate(bench)
    certificate(bench, "o")
    bench.broker(TLS)
    return bench.run("rmqha-admin", "broker", "status", bench.at("broker"), "--tls-ca", "o-ca.pem")


@DOORS.add(
    "a renewed certificate with the old key, then SIGHUP",
    cause="is not the key of",
    fix="stay",
)
def bad_renewal(bench: Bench) -> str:
    certificate(bench)
    running = bench.broker(TLS)
    certificate(bench, "o")
    (bench.directory / "s.pem").write_bytes((bench.directory / "o.pem").read_bytes())
    running.tell(signal.SIGHUP)
    bench.typed = "cp new.pem s.pem; kill -HUP PID"
    return running.until("is not the key of")


@DOORS.add(
    "access control without an account file", cause="plain_acl.yml", fix="aclDirectory", then="A"
)
def no_accounts(bench: Bench) -> str:
    return check(bench, "aclEnable=true\n")


@DOORS.add("a secret that is too short", cause="plain_acl.yml", fix="at least 7", then="A")
def short_secret(bench: Bench) -> str:
    bench.write("plain_acl.yml", ACCOUNTS.replace("12345678", "123", 1))
    return check(bench, "aclEnable=true\n")


@DOORS.add(
    "an account file that is not YAML", cause="plain_acl.yml:3", fix="plain_acl.yml:3", then="A"
)
def no_yaml(bench: Bench) -> str:
    bench.write("plain_acl.yml", "accounts:\n- accessKey: x\n   secretKey: [\n")
    return check(bench, "aclEnable=true\n")


@DOORS.add(
    "an account file that is not YAML, while the broker runs",
    cause="plain_acl.yml",
    fix="stay in force",
    then="A",
)
def broken_while_running(bench: Bench) -> str:
    bench.write("plain_acl.yml", ACCOUNTS)
    running = bench.broker("aclEnable=true\n")
    bench.write("plain_acl.yml", "accounts: [\n")
    bench.typed = "(an editor on plain_acl.yml)"
    return running.until("stay in force")


def refused(bench: Bench, key: str, secret: str) -> str:
    bench.write("plain_acl.yml", ACCOUNTS)
    bench.broker("aclEnable=true\n")
    environ = {"RMQHA_ACCESS_KEY": "adminkey", "RMQHA_SECRET_KEY": "12345678"}
    bench.admin("topic", "create", "T", environ=environ)
    own = {"RMQHA_ACCESS_KEY": key, "RMQHA_SECRET_KEY": secret} if key else {}
    return bench.admin("produce", "T", "hello", environ=own)


@DOORS.add(
    "no account, where access control wants one",
    cause="the request is not signed",
    fix="RMQHA_ACCESS_KEY",
    then="A",
)
def no_account(bench: Bench) -> str:
    return refused(bench, "", "")


@DOORS.add(
    "a wrong secret",
    cause="shopuser",
    fix="acl set",
    then="A",
)
def wrong_secret(bench: Bench) -> str:
    return refused(bench, "shopuser", "87654321")


@DOORS.add(
    "an account without the permission",
    cause="shopuser needs PUB",
    fix="acl set",
    then="A-",
)
def denied(bench: Bench) -> str:
    return refused(bench, "shopuser", "12345678")
