"""Small files, written anywhere that they can be read from."""

from rmq_ha.spark.host.files import ArrowFiles, files_of, write_atomic


def put(place: str, data: bytes) -> None:
    """
    Write a file: whole, or not at all.

    :param place: as for `rmq_ha.spark.host.files.files_of`.
    :raises OSError: it is refused.
    :raises rmq_ha.spark.result.CannotDecide: nothing here can open such a place.
    """
    files, path = files_of(place)
    if not isinstance(files, ArrowFiles):
        write_atomic(path, data)
        return
    filesystem = files.filesystem
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)
