"""Hints between the processes of an SQLite file: whoever listens has a named pipe in a folder beside it.

Pipes rather than sockets: the path of a socket is at most 107 characters long.
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
READ = 65_536  # a pipe holds no more


def tell(folder: Path, text: str, own: str) -> None:
    """Write to all others that listen. One that is full has enough to hear; one without a reader is removed."""
    try:
        places = list(folder.iterdir())
    except OSError:  # nobody ever listened
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
    """Call `hear` on the running loop with the words that are told. Yields the own place in the folder."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as place:
        new = Path(place, "new")
        os.mkfifo(new, 0o600)
        pipe = os.open(new, os.O_RDWR | os.O_NONBLOCK)  # also to write: it never ends
        try:
            new.rename(Path(place, PIPE))  # with that name it has a reader, or is stale
            loop = asyncio.get_running_loop()
            loop.add_reader(pipe, lambda: hear(os.read(pipe, READ).decode("ascii", "replace").split()))
            try:
                yield Path(place).name
            finally:
                loop.remove_reader(pipe)
        finally:
            os.close(pipe)
