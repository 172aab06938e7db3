"""`rmqha-spark pack` and `java-home`: helpers for running the jobs."""

import click

_FAILED = 4


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
def pack(file: str) -> None:
    """
    Write FILE, a zip of rmq-ha, for `spark-submit --py-files FILE`.

    The zip has all of rmq-ha that executors need. Their Python needs pyspark, pyarrow, numpy and
    pandas, and the version and processor of the Python that packs.
    """
    from rmq_ha.lake.spark.host.packing import write_zip

    if not file.endswith(".zip"):
        raise click.UsageError(f"{file}: Spark puts only files named *.zip on the Python path")
    try:
        count = write_zip(file)
    except OSError as failed:
        why = failed.strerror or str(failed)
        click.echo(f"Error: {file} cannot be written: {why}", err=True)
        raise click.exceptions.Exit(_FAILED) from None
    click.echo(f"{file}: {count} files")


@click.command("java-home")
@click.option(
    "--verbose", "-v", is_flag=True, help="Print on stderr which Java was chosen, and why."
)
def java_home(verbose: bool) -> None:
    """
    Print the JAVA_HOME of the Java that the jobs take.

    `JAVA_HOME=$(rmqha-spark java-home) spark-submit spark/verify_offsets.py ...`
    """
    from rmq_ha.lake.spark.host.java import NoJava, find_java

    try:
        java = find_java()
    except NoJava as no_java:
        click.echo(f"Error: {no_java}", err=True)
        raise click.exceptions.Exit(_FAILED) from None
    if verbose:
        for reason in java.passed_over:
            click.echo(f"not taken: {reason}", err=True)
        click.echo(f"Java {java.version} of {java.source}: {java.home}", err=True)
    click.echo(str(java.home))
