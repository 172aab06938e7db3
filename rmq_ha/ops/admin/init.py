"""`rmqha-admin init`: writes the properties files of a new cluster."""

import os.path
from collections.abc import Callable, Sequence
from random import SystemRandom

import click

from rmq_ha.base.config.doubtful import NAMES, stands_alone
from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.host_port import HostPort
from rmq_ha.ops.admin.confirm import dry_run_option
from rmq_ha.ops.admin.layouts import (
    SCRAPE_FILE,
    PlannedServer,
    controller,
    dledger,
    failover,
    pair,
    scrape_file,
)
from rmq_ha.ops.admin.options import common_options, current_options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import FAILED
from rmq_ha.ops.admin.sites import Site, read_hosts

_LAYOUTS: dict[str, Callable[[Site], list[PlannedServer]]] = {
    "pair": pair,
    "dledger": dledger,
    "controller": controller,
    "failover": failover,
}


@click.command()
@click.argument("directory", type=click.Path(file_okay=False))
@click.option(
    "--pair",
    "layouts",
    flag_value="pair",
    multiple=True,
    help="Write the files of a master and its slave.",
)
@click.option(
    "--dledger",
    "layouts",
    flag_value="dledger",
    multiple=True,
    help="Write the files of three brokers that elect their master (DLedger).",
)
@click.option(
    "--controller",
    "layouts",
    flag_value="controller",
    multiple=True,
    help="Write the files of controllers for RocketMQ 5's brokers.",
)
@click.option(
    "--failover",
    "layouts",
    flag_value="failover",
    multiple=True,
    help="Write the files of a pair that elects its master. The third host runs a controller only.",
)
@click.option(
    "--hosts",
    default="",
    metavar="A,B,...",
    help="Addresses of the machines. Default: everything runs on 127.0.0.1.",
)
@click.option(
    "--base-port",
    type=click.IntRange(1024),
    metavar="PORT",
    help="Use ports from this one on (some 300 of them). Default: the usual ports.",
)
@click.option(
    "--cluster", default="DefaultCluster", show_default=True, help="The brokerClusterName."
)
@click.option(
    "--name",
    default="broker-a",
    show_default=True,
    help="The brokerName; in DLedger mode also the name of the group.",
)
@click.option(
    "--data",
    default="",
    metavar="DIR",
    help="The directory of the stores. Default: DIRECTORY/data.",
)
@click.option(
    "--grpc",
    "has_grpc",
    is_flag=True,
    help="Serve RocketMQ 5's clients, which speak gRPC, on listenPort, too.",
)
@dry_run_option
@common_options
def init(
    directory: str,
    layouts: tuple[str, ...],
    hosts: str,
    base_port: int | None,
    cluster: str,
    name: str,
    data: str,
    has_grpc: bool,
    dry_run: bool,
) -> None:
    """
    Write the properties files of a new cluster into DIRECTORY, and list the commands that start it.

    With --hosts, each server shows its health, metrics and page to other machines; the command
    makes a pageToken that guards the pages. It also writes a configuration for Prometheus.

    If one of the files exists, nothing is written, and the exit code is 1.
    """
    for option, given in (("--name", name), ("--cluster", cluster)):
        if not given or not stands_alone(given):
            raise click.UsageError(f"{option} {given!r}: {NAMES}")
    directory = os.path.abspath(directory)
    place = Site(
        [],
        cluster,
        name,
        os.path.abspath(data) if data else f"{directory}/data",
        f"{SystemRandom().getrandbits(160):040x}",
        base_port or 0,
        has_grpc,
    )
    try:
        planned = _LAYOUTS[_one_of(layouts)](place._replace(hosts=read_hosts(hosts)))
    except WrongUsage as error:
        raise click.UsageError(str(error)) from None
    output, disk = Output(current_options().as_json), RealDisk()
    texts = {item.file: item.text for item in planned}
    texts[SCRAPE_FILE] = scrape_file(planned)
    existing = [file for file in texts if disk.exists(f"{directory}/{file}")]
    # Look at all files before the first is written, so that a refusal leaves nothing behind.
    if existing:
        output.error(f"{directory} has {', '.join(existing)} already: name another directory")
        click.get_current_context().exit(FAILED)
    if not dry_run:
        for file, text in texts.items():
            disk.replace(f"{directory}/{file}", text.encode())
    output.table(
        "Would be written" if dry_run else "Written; start them in this order",
        ("host", "command", "status"),
        [
            (item.host, f"{item.command} -c {directory}/{item.file}", _page_of(item))
            for item in planned
        ],
    )
    output.say(f"Prometheus reads {directory}/{SCRAPE_FILE}.")
    if has_grpc:
        output.say("The brokers need the packages of rmq-ha[grpc].")


def _one_of(layouts: Sequence[str]) -> str:
    """
    Return the one layout that was asked for.

    :raises WrongUsage: no layout was asked for, or several.
    """
    names = list(dict.fromkeys(layouts))
    if len(names) == 1:
        return names[0]
    chosen = " and ".join(f"--{name}" for name in names)
    choice = ", ".join(f"--{name}" for name in _LAYOUTS)
    raise WrongUsage(
        f"{chosen} do not go together: give one of {choice}" if names else f"give one of {choice}"
    )


def _page_of(item: PlannedServer) -> str:
    return f"http://{HostPort(item.host, item.status)}/"
