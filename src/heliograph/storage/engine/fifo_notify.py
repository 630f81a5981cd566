"""Wakeups between processes that share an SQLite file: each listener owns a named pipe in a folder beside the file.

Pipes are used because socket paths are limited to 107 characters.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PIPE = "pipe"
READ = 65_536  # capacity of a pipe


def tell(folder: Path, text: str, own: str) -> None:
    """Write `text` to the pipes of all other listeners.

    A full pipe is skipped, as its reader will wake up anyway. A pipe without a reader is deleted.
    """
    try:
        places = list(folder.iterdir())
    except OSError:  # no process has listened yet
        return
    for place in places:
        if place.name == own:
            continue
        try:
            pipe = os.open(place / PIPE, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:
                shutil.rmtree(place, ignore_errors=True)
            continue
        with contextlib.suppress(OSError):
            os.write(pipe, f"{text} ".encode())
        os.close(pipe)


@contextlib.contextmanager
def listening(folder: Path, hear: Callable[[list[str]], None]) -> Iterator[str]:
    """Call `hear` on the running loop with the words of each notification.

    Yields the name of this listener's subfolder.
    """
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as place:
        new = Path(place, "new")
        os.mkfifo(new, 0o600)
        pipe = os.open(new, os.O_RDWR | os.O_NONBLOCK)  # also open for writing, so that there is never an end of file
        try:
            new.rename(Path(place, PIPE))  # under its final name, a pipe has a reader or is stale
            loop = asyncio.get_running_loop()
            loop.add_reader(pipe, lambda: hear(os.read(pipe, READ).decode("ascii", "replace").split()))
            try:
                yield Path(place).name
            finally:
                loop.remove_reader(pipe)
        finally:
            os.close(pipe)
