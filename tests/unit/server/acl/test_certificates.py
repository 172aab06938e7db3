"""Accounts of client certificates, and where a signature may be sent at all."""

from random import Random
from typing import Any

import pytest

from rmq_ha.base.acl.refusals import RefusalReason
from rmq_ha.base.errors import AccessRefused, ConfigurationError
from rmq_ha.base.model.security import PLAIN, Security
from rmq_ha.base.remoting.signing import Credentials, RequestSigner, SignedTimes, sign
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.acl.freshness import Freshness
from rmq_ha.server.acl.reading import read_file
from rmq_ha.server.acl.rules import Rules

FILE = """
globalWhiteRemoteAddresses: [10.9.9.9]
accounts:
- {accessKey: adminadmin, secretKey: adminsecret, admin: true, certificateNames: [ops.example]}
- accessKey: useruser
  secretKey: usersecret
  whiteRemoteAddress: 10.8.8.8
  topicPerms: [mine=PUB]
  certificateNames: [app.example, "spiffe://example/app"]
- {accessKey: otheruser, secretKey: othersecret, topicPerms: [mine=PUB]}
"""
ADMIN, USER = Credentials("adminadmin", "adminsecret"), Credentials("useruser", "usersecret")
OTHER = Credentials("otheruser", "othersecret")
TLS = Security(is_tls=True)


def rules(text: str = FILE, *, strict: bool = True, **demands: Any) -> Rules:
    return Rules([read_file("f", text.encode())], strict=strict, **demands)


def shown(*names: str) -> Security:
    return Security(is_tls=True, names=names)


def send(topic: str = "mine", account: Credentials | None = None) -> RemotingCommand:
    request = send_request("g", topic, 0, b"hi", "", 0)
    return request if account is None else sign(request, account)


def outcome(
    made: Rules, request: RemotingCommand, security: Security = PLAIN, host: str = "10.0.0.1"
) -> str:
    """The account that it counts for, or why it is refused."""
    request.security = security
    try:
        grant = made.check(request, host)
    except AccessRefused as refusal:
        return refusal.kind
    return "nobody" if grant is None else grant.account


@pytest.mark.parametrize("strict", [True, False])
def test_a_certificate_is_as_good_as_a_signature(strict: bool) -> None:
    made = rules(strict=strict)
    assert outcome(made, send(), shown("app.example")) == "useruser"
    assert outcome(made, send(), shown("x", "spiffe://example/app")) == "useruser"
    assert outcome(made, send(), shown("app.example", "spiffe://example/app")) == "useruser"
    assert outcome(made, send("theirs"), shown("app.example")) == RefusalReason.PERMISSION
    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "mine"})
    assert outcome(made, delete, shown("app.example")) == RefusalReason.PERMISSION
    assert outcome(made, delete, shown("ops.example")) == "adminadmin"


@pytest.mark.parametrize("strict", [True, False])
def test_a_certificate_of_nobody_saves_no_signature(strict: bool) -> None:
    made = rules(strict=strict)
    for security in (PLAIN, TLS, shown("elsewhere.example"), shown("APP.example")):
        assert outcome(made, send(), security) == RefusalReason.UNSIGNED
        assert outcome(made, send("mine", OTHER), security) == "otheruser"


@pytest.mark.parametrize("strict", [True, False])
def test_signature_and_certificate_have_to_agree(strict: bool) -> None:
    made = rules(strict=strict)
    app = shown("app.example")
    assert outcome(made, send("mine", USER), app) == "useruser"
    assert outcome(made, send("mine", OTHER), app) == RefusalReason.CERTIFICATE
    assert outcome(made, send("mine", ADMIN), app) == RefusalReason.CERTIFICATE
    assert (
        outcome(made, send("mine", Credentials("useruser", "wrong")), app)
        == RefusalReason.SIGNATURE
    )
    key_alone = send()
    key_alone.ext = {**(key_alone.ext or {}), "AccessKey": "useruser"}
    assert outcome(made, key_alone, app) == "useruser"
    assert outcome(made, key_alone, TLS) == RefusalReason.SIGNATURE
    assert outcome(made, send(), shown("app.example", "ops.example")) == RefusalReason.CERTIFICATE
    assert outcome(made, send("mine", OTHER), app, "10.9.9.9") == "nobody", "asked for nothing"


def test_what_is_said_names_the_next_step() -> None:
    made = rules()
    request = send("mine", OTHER)
    request.security = shown("app.example")
    with pytest.raises(AccessRefused, match=r"accessKey=otheruser.*accessKey=useruser: use one"):
        made.check(request, "10.0.0.1")


def test_a_name_is_one_accounts() -> None:
    text = FILE.replace("[ops.example]", "[app.example]")
    made = rules(text)
    assert outcome(made, send(), shown("app.example")) == "adminadmin"
    (notice,) = made.every_notice()
    assert "app.example of account useruser has no effect" in notice
    with pytest.raises(ConfigurationError, match="certificateNames: must be a list"):
        rules(text.replace("[app.example]", "app.example"))


@pytest.mark.parametrize("strict", [True, False])
def test_signatures_by_plain_tcp_are_refused_where_tls_is_required(strict: bool) -> None:
    made = rules(strict=strict, requires_tls=True)
    assert outcome(made, send("mine", USER)) == RefusalReason.PLAIN
    assert outcome(made, send("mine", USER), TLS) == "useruser"
    assert outcome(made, send("mine", USER), PLAIN, "10.8.8.8") == RefusalReason.PLAIN, (
        "need not sign"
    )
    unsigned = send()
    unsigned.ext = {**(unsigned.ext or {}), "AccessKey": "useruser"}
    assert outcome(made, unsigned, PLAIN, "10.8.8.8") == "useruser"
    assert outcome(made, send(), PLAIN) == RefusalReason.UNSIGNED
    assert outcome(made, send("mine", USER), PLAIN, "10.9.9.9") == "nobody"
    with pytest.raises(AccessRefused, match=r"aclRequiresTls=true: connect with TLS"):
        made.check(send("mine", USER), "10.0.0.1")


def test_a_certificate_is_as_good_as_a_signed_time() -> None:
    """TLS itself lets nothing be sent again."""
    freshness = Freshness(lambda: 1_700_000_000_000, is_required=True)
    made = rules(freshness=freshness)
    app = shown("app.example")
    assert outcome(made, send(), app) == "useruser"
    assert outcome(made, send("mine", USER), app) == "useruser"
    assert outcome(made, send("mine", USER), TLS) == RefusalReason.NOT_TIMED
    late = RequestSigner(USER, SignedTimes(lambda: 1, Random(1))).sign(send())
    assert outcome(made, late, app) == RefusalReason.TIME


def test_the_file_is_told_with_its_certificates() -> None:
    admin, user, other = read_file("f", FILE.encode()).accounts
    assert user.certificate_names == ("app.example", "spiffe://example/app")
    assert user.to_json()["certificateNames"] == user.certificate_names
    assert "certificateNames" not in other.to_json()
    assert admin.certificate_names == ("ops.example",)


@pytest.mark.parametrize("strict", [True, False])
def test_the_previous_secret_counts_and_is_told(strict: bool) -> None:
    told: list[tuple[str, str]] = []
    text = FILE.replace("usersecret", "newsecret\n  previousSecretKey: usersecret")
    made = rules(text, strict=strict, on_previous=lambda *who: told.append(who))
    new = Credentials("useruser", "newsecret")
    assert outcome(made, send("mine", new)) == "useruser"
    assert told == []
    assert outcome(made, send("mine", USER)) == "useruser"
    assert told == [("useruser", "10.0.0.1")]
    assert outcome(made, send("mine", OTHER)) == "otheruser"
    assert outcome(made, send("mine", Credentials("otheruser", "usersecret"))) == "signature"
    for account in (USER, new):
        now = RequestSigner(account, SignedTimes(lambda: 1, Random(1)))
        late = rules(text, strict=strict, freshness=Freshness(lambda: 1))
        assert outcome(late, now.sign(send())) == "useruser"
    with pytest.raises(ConfigurationError, match="previousSecretKey: must have at least 7"):
        rules(text.replace("previousSecretKey: usersecret", "previousSecretKey: short"))
