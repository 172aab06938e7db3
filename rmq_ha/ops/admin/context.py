"""
`rmqha-admin context`: keeps addresses and keys of clusters under names, so that nobody has to type
them.
"""

import os.path
from typing import Any

import click

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.admin.confirm import NotAgreed, is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.contexts import KEYS, SECRET, Contexts
from rmq_ha.ops.admin.options import common_options, context_file, given_values
from rmq_ha.ops.admin.output import Output, is_interactive

COLUMNS = ("context", "used", "namesrv", "account", "tls")
HIDDEN = "(hidden)"
_FILES = ("tls_ca", "tls_cert", "tls_key")


class _ContextFileError(click.ClickException):
    """The file of contexts, or the change that was asked for, does not fit."""

    exit_code = 2


@click.group()
@common_options
def context() -> None:
    """
    Keep the name servers, account and certificates of clusters under names, in one private file.

    `rmqha-admin --context NAME ...` or the environment variable RMQHA_CONTEXT selects a context.
    `context use` sets the one that holds otherwise. Options on the command line win over a context.
    """


def _output() -> Output:
    return Output(bool(given_values().get("json")))


def _read() -> Contexts:
    try:
        return Contexts.read(context_file())
    except ConfigurationError as error:
        raise _ContextFileError(str(error)) from None


def _write(contexts: Contexts) -> None:
    try:
        contexts.write(context_file())
    except ConfigurationError as error:
        raise _ContextFileError(str(error)) from None


def _get(contexts: Contexts, name: str) -> dict[str, Any]:
    try:
        return contexts.get(name)
    except ConfigurationError as error:
        raise _ContextFileError(str(error)) from None


def _is_sure(question: str, **sure: bool) -> bool:
    try:
        return is_wanted(question, **sure)
    except NotAgreed as error:
        raise click.ClickException(str(error)) from None


@context.command(name="list")
@common_options
def list_() -> None:
    """List all contexts, without their secrets."""
    contexts = _read()
    rows = [
        [
            name,
            name == contexts.used,
            values.get("namesrv"),
            values.get("access_key"),
            bool(values.get("tls") or values.get("tls_ca") or values.get("tls_cert")),
        ]
        for name, values in sorted(contexts.known.items())
    ]
    _output().table("contexts", COLUMNS, rows, file=context_file())


@context.command()
@click.argument("name", metavar="NAME")
@click.option("--show-secrets", is_flag=True, help="Print secrets instead of hiding them.")
@common_options
def show(name: str, show_secrets: bool) -> None:
    """Show all values of a context."""
    _output().fields({"context": name, **_mask_secrets(_get(_read(), name), show_secrets)})


def _mask_secrets(values: dict[str, Any], show_secrets: bool = False) -> dict[str, Any]:
    return {
        key: HIDDEN if key in SECRET and not show_secrets else value
        for key, value in values.items()
    }


@context.command()
@click.argument("name", metavar="NAME")
@click.option("--use", "is_used", is_flag=True, help="Make the new context the default.")
@sure_options
@common_options
def add(name: str, is_used: bool, **sure: bool) -> None:
    """
    Keep the options of this line as the context NAME: `context add prod -n a:9876;b:9876 --tls-ca
    ca.pem --access-key ops`. The secret key is asked for, or taken from RMQHA_SECRET_KEY.

    A context of this name is replaced, after a question.
    """
    contexts = _read()
    values = {key: value for key, value in given_values().items() if key in KEYS and value}
    if not values.get("namesrv"):
        raise click.UsageError("a context needs name servers: give --namesrv")
    if values.get("access_key") and not values.get("secret_key") and is_interactive():
        values["secret_key"] = click.prompt("secret key", hide_input=True, err=True)
    if bool(values.get("access_key")) != bool(values.get("secret_key")):
        raise click.UsageError("--access-key and --secret-key (or RMQHA_SECRET_KEY) go together")
    if bool(values.get("tls_cert")) != bool(values.get("tls_key")):
        raise click.UsageError("--tls-cert and --tls-key go together")
    for key in _FILES:
        if key in values:
            values[key] = os.path.abspath(values[key])
    is_new = name not in contexts.known
    if not is_new:
        must_be_askable(**sure)
    output = _output()
    output.fields({"context": name, "is_new": is_new, **_mask_secrets(values)})
    sure["yes"] = sure["yes"] or is_new
    if _is_sure(f"Replace the context {name}?", **sure):
        contexts.known[name] = values
        if is_used:
            contexts.used = name
        _write(contexts)


@context.command()
@click.argument("name", metavar="NAME", default="")
@click.option("--none", is_flag=True, help="Use no context unless a command names one.")
@common_options
def use(name: str, none: bool) -> None:
    """Use the context NAME from now on whenever no other context and no name server is given."""
    if bool(name) == none:
        raise click.UsageError("give the name of a context, or --none")
    contexts = _read()
    if name:
        _get(contexts, name)
    contexts.used = name or None
    _write(contexts)
    _output().line(f"{name or 'no context'} is used", {"used": contexts.used})


@context.command()
@click.argument("name", metavar="NAME")
@sure_options
@common_options
def delete(name: str, **sure: bool) -> None:
    """Forget a context and its secrets."""
    must_be_askable(**sure)
    contexts = _read()
    values = _get(contexts, name)
    output = _output()
    output.fields({"context": name, **_mask_secrets(values)})
    if _is_sure(f"Delete the context {name}?", **sure):
        del contexts.known[name]
        if contexts.used == name:
            contexts.used = None
        _write(contexts)
        output.line(f"{name} is deleted", {"context": name, "deleted": True})
