"""Options that all commands share; they may stand before and after the command's name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.properties import DELAY
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.ops.admin.contexts import Contexts, merged

_LAST_LEVEL = 18
"""The last delay level of a broker whose `messageDelayLevel` is the default."""

F = TypeVar("F", bound=Callable[..., Any])
_KEY = "rmq_ha.ops.admin.options"
_ON_LINE = "rmq_ha.ops.admin.options.on_line"


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    The values of the options that all commands share.

    :ivar namesrv: `host:port` of name servers, separated by `;`; may be empty.
    :ivar timeout_ms: timeout of one call, in ms.
    :ivar sign_only_over_tls: see `rmq_ha.client.rules.settings.ClientConfig`.
    :ivar tls: RocketMQ's `tls.*` keys.
    """

    namesrv: str = ""
    credentials: Credentials | None = None
    sign_only_over_tls: bool = False
    use_tls: bool = False
    tls: dict[str, str] = field(default_factory=dict)
    timeout_ms: int = 5_000
    as_json: bool = False
    verbose: bool = False

    def client_config(self, **more: Any) -> ClientConfig:
        """Return a configuration for `ClientInstance` or `rmq_ha.client.blocking`."""
        return ClientConfig(
            namesrv_addr=self.namesrv,
            credentials=self.credentials,
            sign_only_over_tls=self.sign_only_over_tls,
            use_tls=self.use_tls,
            tls=self.tls,
            mq_client_api_timeout_ms=self.timeout_ms,
            connect_timeout_ms=min(self.timeout_ms, 3_000),
            **more,
        )


def combine_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """
    Return a decorator that gives a command all these options; its help shows them in this order.
    """

    def give(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return give


def broker_file_option(help_text: str) -> Callable[[F], F]:
    """Return the option `--config`, which names the properties file of a broker of this machine."""
    return click.option(
        "--config",
        "-c",
        required=True,
        type=click.Path(exists=True, dir_okay=False, resolve_path=True),
        help=help_text,
    )


on_option = click.option(
    "--on",
    "which",
    default="",
    metavar="BROKER|CLUSTER|HOST:PORT",
    help="Act on these brokers only. Default: all masters.",
)
"""Option of commands that change something on all masters unless `--on` names some."""


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """
    Keep an option's value. The value nearest to the command's name wins; defaults are not kept.
    """
    assert parameter.name is not None
    kept = context.find_root().meta.setdefault(_KEY, {})
    if context.get_parameter_source(parameter.name) in (
        ParameterSource.COMMANDLINE,
        ParameterSource.ENVIRONMENT,
    ):
        on_line = context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if on_line or parameter.name not in kept:
            kept[parameter.name] = value
        if on_line:
            context.find_root().meta.setdefault(_ON_LINE, set()).add(parameter.name)


def _shared_option(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, expose_value=False, callback=_keep, **attributes)


def refuse_given(names: Iterable[str], why: str) -> None:
    """
    Refuse options that would have no effect, instead of ignoring them.

    :param names: parameters of the command; their defaults are not refused.
    :raises click.UsageError: one of the options stands on the command line or in the environment.
    """
    context = click.get_current_context()
    named = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name)
        in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    ]
    if named:
        raise click.UsageError(f"{', '.join(named)}: {why}")


_FILE = click.Path(dir_okay=False)
_SHARED = (
    _shared_option(
        "--namesrv",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT[;...]",
        help="Addresses of the name servers. Default: the environment's NAMESRV_ADDR.",
    ),
    _shared_option(
        "--access-key",
        envvar="RMQHA_ACCESS_KEY",
        help="The account, for brokers with ACL. Default: the environment's RMQHA_ACCESS_KEY.",
    ),
    _shared_option(
        "--secret-key",
        envvar="RMQHA_SECRET_KEY",
        help="The account's secret. Prefer the environment's RMQHA_SECRET_KEY, which `ps` does "
        "not show.",
    ),
    _shared_option(
        "--security-token", envvar="RMQHA_SECURITY_TOKEN", help="The token of a temporary account."
    ),
    _shared_option(
        "--sign-only-over-tls",
        is_flag=True,
        envvar="RMQHA_SIGN_ONLY_OVER_TLS",
        help="Refuse to sign for a server that has not proven by TLS who it is.",
    ),
    _shared_option(
        "--context",
        envvar="RMQHA_CONTEXT",
        metavar="NAME",
        help="Use the cluster that `context add` stored under this name. Default: the one chosen "
        "by `context use`.",
    ),
    _shared_option(
        "--context-file",
        envvar="RMQHA_CONTEXT_FILE",
        type=_FILE,
        help="The file of contexts. Default: contexts.json in the user's settings.",
    ),
    _shared_option("--tls", is_flag=True, help="Connect with TLS."),
    _shared_option(
        "--tls-ca",
        type=_FILE,
        help="PEM file of the authorities that may sign certificates of servers; implies --tls. "
        "Without it no certificate is verified.",
    ),
    _shared_option("--tls-cert", type=_FILE, help="PEM file with the certificate of this client."),
    _shared_option(
        "--tls-key", type=_FILE, help="PEM file (PKCS#8) with the key of that certificate."
    ),
    _shared_option(
        "--timeout",
        type=click.FloatRange(min=0.001),
        metavar="SECONDS",
        help="Seconds to wait for one answer. Default: 5.",
    ),
    _shared_option(
        "--json", is_flag=True, help="Print JSON on stdout, and errors as JSON on stderr."
    ),
    _shared_option("--verbose", "-v", is_flag=True, help="Print the client's log on stderr."),
)


common_options = combine_options(*_SHARED)
"""Gives a command the shared options; `current_options` returns their values."""


def given_values() -> dict[str, Any]:
    """
    Return the options that the command line and the environment gave, by name, without those of a
    context.
    """
    return dict(click.get_current_context().find_root().meta.get(_KEY, {}))


def context_file() -> str:
    given: str | None = given_values().get("context_file")
    return given or f"{click.get_app_dir('rmqha-admin')}/contexts.json"


def _with_context(given: dict[str, Any]) -> Mapping[str, Any]:
    on_line = click.get_current_context().find_root().meta.get(_ON_LINE, ())
    named = given.get("context")
    try:
        contexts = Contexts.read(context_file())
        name = named or contexts.used
        values = contexts.get(name) if name else {}
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    return merged(given, on_line, values, is_named=bool(named))


def current_options() -> Options:
    """
    Return the shared options of the running command.

    :raises click.UsageError: options do not fit each other.
    """
    kept = _with_context(given_values())
    access, secret = kept.get("access_key"), kept.get("secret_key")
    if bool(access) != bool(secret):
        raise click.UsageError("--access-key and --secret-key (or their variables) go together")
    credentials = None
    if access and secret:
        credentials = Credentials(access, secret, kept.get("security_token"))
    use_tls, tls = _tls(kept)
    return Options(
        namesrv=kept.get("namesrv") or "",
        credentials=credentials,
        sign_only_over_tls=bool(kept.get("sign_only_over_tls")),
        use_tls=use_tls,
        tls=tls,
        timeout_ms=max(1, int(kept.get("timeout", 5.0) * 1000)),
        as_json=bool(kept.get("json")),
        verbose=bool(kept.get("verbose")),
    )


def _tls(kept: Mapping[str, Any]) -> tuple[bool, dict[str, str]]:
    ca, certificate, key = (kept.get(name) for name in ("tls_ca", "tls_cert", "tls_key"))
    if bool(certificate) != bool(key):
        raise click.UsageError("--tls-cert and --tls-key go together")
    tls = {}
    if ca:
        tls["tls.client.trustCertPath"] = ca
        tls["tls.client.authServer"] = "true"
    if certificate and key:
        tls["tls.client.certPath"] = certificate
        tls["tls.client.keyPath"] = key
    if tls:
        tls["tls.test.mode.enable"] = "false"
    return bool(kept.get("tls") or tls), tls


def read_properties(_: Any, __: Any, values: Iterable[str]) -> dict[str, str]:
    """
    Return the properties of a message by name, from the values of a repeatable option.

    :raises click.BadParameter: a value has not the form NAME=VALUE.
    """
    properties = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not (name and separator and text):
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        if name == DELAY and not (text.isdecimal() and int(text) <= _LAST_LEVEL):
            raise click.BadParameter(
                f"{value}: {DELAY} is a level from 0 to {_LAST_LEVEL}: by default 1 means 1s, and "
                f"{_LAST_LEVEL} means 2h"
            )
        properties[name] = text
    return properties
