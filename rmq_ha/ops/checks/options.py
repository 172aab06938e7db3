"""Options of the command line that all commands have that check a store."""

import re

import click


def _index_sizes(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, int] | None:
    """Return slots and items of `--index-sizes`; None: the option was not given."""
    if text is None:
        return None
    sizes = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", text)
    if sizes is None or not int(sizes[1]):
        what = f"{text!r}: write maxHashSlotNum,maxIndexNum, as 5000000,20000000"
        raise click.BadParameter(what, context, parameter)
    return int(sizes[1]), int(sizes[2])


index_sizes_option = click.option(
    "--index-sizes",
    callback=_index_sizes,
    metavar="SLOTS,ITEMS",
    help="maxHashSlotNum and maxIndexNum of the broker, if they are not the default.",
)
