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

PIPE_NAME = "pipe"
READ_BYTES = 65_536  # capacity of a pipe


def notify(folder: Path, text: str, own_name: str) -> None:
    """Write `text` to the pipes of all other listeners.

    A full pipe is skipped, as its reader will wake up anyway. A pipe without a reader is deleted.
    """
    try:
        listeners = list(folder.iterdir())
    except OSError:  # no process has listened yet
        return
    for listener in listeners:
        if listener.name == own_name:
            continue
        try:
            pipe = os.open(listener / PIPE_NAME, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:
                shutil.rmtree(listener, ignore_errors=True)
            continue
        with contextlib.suppress(OSError):
            os.write(pipe, f"{text} ".encode())
        os.close(pipe)


def has_listener(folder: Path) -> bool:
    """Return whether a live process listens in the folder."""
    for pipe in folder.glob(f"*/{PIPE_NAME}"):
        with contextlib.suppress(OSError):  # raised by a pipe without a reader
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            return True
    return False


@contextlib.contextmanager
def listen(folder: Path, on_notify: Callable[[list[str]], None]) -> Iterator[str]:
    """Call `on_notify` on the running event loop with the words that other processes write to this listener's pipe.

    The context value is the name of this listener's subfolder.
    """
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as own_folder:
        new_pipe = Path(own_folder, "new")
        os.mkfifo(new_pipe, 0o600)
        # Also open for writing, so that there is never an end of file
        descriptor = os.open(new_pipe, os.O_RDWR | os.O_NONBLOCK)
        try:
            new_pipe.rename(Path(own_folder, PIPE_NAME))  # a pipe with its final name has a reader or is stale
            loop = asyncio.get_running_loop()
            loop.add_reader(
                descriptor, lambda: on_notify(os.read(descriptor, READ_BYTES).decode("ascii", "replace").split())
            )
            try:
                yield Path(own_folder).name
            finally:
                loop.remove_reader(descriptor)
        finally:
            os.close(descriptor)
