"""`rmqha-admin init`: the properties files of a new cluster."""

import os.path
from collections.abc import Callable

import click

from rmq_ha.admin.confirm import dry_run_option
from rmq_ha.admin.layouts import Planned, Site, controller, dledger, failover, pair
from rmq_ha.admin.options import common_options, current_options
from rmq_ha.admin.output import Output
from rmq_ha.admin.session import FAILED
from rmq_ha.errors import WrongUsage
from rmq_ha.host.disk import RealDisk

_LAYOUTS: dict[str, Callable[[Site], list[Planned]]] = {
    "pair": pair,
    "dledger": dledger,
    "controller": controller,
    "failover": failover,
}


@click.command()
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--pair", "layout", flag_value="pair", help="A master and its slave.")
@click.option("--dledger", "layout", flag_value="dledger", help="Three that elect their master.")
@click.option(
    "--controller", "layout", flag_value="controller", help="Controllers for RocketMQ 5's brokers."
)
@click.option(
    "--failover",
    "layout",
    flag_value="failover",
    help="A pair that elects its master; the third host has a controller only.",
)
@click.option(
    "--hosts", default="", metavar="A,B,...", help="Addresses; default: all on 127.0.0.1."
)
@click.option("--cluster", default="DefaultCluster", show_default=True, help="brokerClusterName.")
@click.option("--name", default="broker-a", show_default=True, help="brokerName, or the group's.")
@click.option("--data", default="", metavar="DIR", help="Of the stores; default: DIRECTORY/data.")
@dry_run_option
@common_options
def init(
    directory: str,
    layout: str | None,
    hosts: str,
    cluster: str,
    name: str,
    data: str,
    dry_run: bool,
) -> None:
    """
    Write the properties files of a new cluster into DIRECTORY, and say what to start where.

    Nothing that is there is changed: exit code 1.
    """
    if layout is None:
        raise click.UsageError("one of --pair, --dledger, --failover, --controller")
    directory = os.path.abspath(directory)
    named = [host.strip() for host in hosts.split(",") if host.strip()]
    place = Site(named, cluster, name, os.path.abspath(data) if data else f"{directory}/data")
    try:
        planned = _LAYOUTS[layout](place)
    except WrongUsage as error:
        raise click.UsageError(str(error)) from None
    output, disk = Output(current_options().as_json), RealDisk()
    existing = [item.file for item in planned if disk.exists(f"{directory}/{item.file}")]
    if existing:
        output.error(f"{directory} has {', '.join(existing)} already: name another directory")
        click.get_current_context().exit(FAILED)
    if not dry_run:
        for item in planned:
            disk.replace(f"{directory}/{item.file}", item.text.encode())
    output.table(
        "Would be written" if dry_run else "Written; start them in this order",
        ("host", "command"),
        [(item.host, f"{item.command} -c {directory}/{item.file}") for item in planned],
    )
