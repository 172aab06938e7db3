"""Runs an operator's command; it blocks, so call it in the worker."""

import subprocess

_STDERR = 2


def run_command(text: str) -> int:
    """
    Run a command by the shell. Its output goes to stderr, as stdout is for this program's output.

    :returns: the command's exit code.
    """
    done = subprocess.run(
        text, shell=True, check=False, stdin=subprocess.DEVNULL, stdout=_STDERR, stderr=_STDERR
    )
    return done.returncode
