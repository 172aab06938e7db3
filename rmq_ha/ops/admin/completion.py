"""`rmqha-admin completion`: a script that has the shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """
    Print a script with which SHELL completes commands and options.

    For bash: rmqha-admin completion bash >> ~/.bashrc
    """
    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, "rmqha-admin", "_RMQHA_ADMIN_COMPLETE").source())
