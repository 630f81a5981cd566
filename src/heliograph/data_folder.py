"""What a process keeps in its data folder: the master secret, its seat, its address, and how far it has seen its
databases.
"""

import base64
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO

from heliograph.encryption import CannotOpen, Sealer

SEATS = 1000
MARK = "user.heliograph"
BACKED_UP = "backed-up"
KEPT = "keys/kept"  # the context of keys that outlive the master secret they were derived from
LOST = "none that is here"
OUTLIVE = ("codes", "envelope", "ownership", "erasure")


class Seat:
    """A name for this process: taken again by its restart at once, never shared by two live processes.

    The lock ends with the process, also after kill -9; so the next process in the seat may take back its claims.
    """

    def __init__(self, data: Path) -> None:
        folder = data / "seats"
        folder.mkdir(parents=True, exist_ok=True)
        instance = _keep(data / "instance", lambda: secrets.token_hex(8))
        for number in range(SEATS):
            file = open(folder / str(number), "w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self._file: IO[str] = file
            self.name = f"{instance}/{number}"
            return
        raise RuntimeError(f"{folder}: all {SEATS} seats are taken")

    def leave(self) -> None:
        self._file.close()


class Secrets:
    """The master secret, and the keys derived from it: one for each purpose, so that no two uses share one.

    The master secret is read when the first key is asked for. Unless the settings give it, it is made on the first
    start and kept in a file of mode 0600.

    While it is rotated there are several, and the database says which one holds. What must outlive it (hashes, signed
    addresses, records in DNS) goes by keys of the first one, which the database has sealed (ADR 0038).
    """

    def __init__(self, data: Path, given: bytes | None, old: bytes | None = None) -> None:
        self.given, self.old = given, old
        self.file, self.next_file, self.old_file = (data / name for name in ("secret", "secret.new", "secret.old"))
        self._current: bytes | None = None  # None: the database has not said
        self._kept: dict[str, str] = {}  # purpose → key in hex

    def exists(self) -> bool:
        """Tell whether there is a secret: then asking for a key makes none."""
        return self.given is not None or self.file.exists()

    @cached_property
    def sealer(self) -> Sealer:
        return Sealer(*self._sealing(), look=self._sealing)

    def adopt(self, digest: str | None, kept: str | None) -> bool:
        """Take what the database goes by; return False when the secret is not here. Makes none."""
        if not self.exists() or digest is None:
            return digest is None
        if digest != self.digest or kept is not None:
            current = next((one for one in self._masters() if _derived(one, "check").hex() == digest), None)
            if current is None:
                return False
            if current != self._master:
                self._current = current
                self.sealer.use(*self._sealing())
        if kept is not None:
            with suppress(CannotOpen):
                self._kept = json.loads(self.sealer.open(kept, KEPT))
        return True

    @property
    def digests(self) -> list[str]:
        """Return the digests of all that are here; the one that seals comes first."""
        return [_derived(one, "check").hex() for one in self._masters()]

    def count(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Count the sealed texts, given by context, that each secret opens, by the beginning of its digest."""
        found = Counter(self.sealer.key_of(text, context) for context, text in texts.items())
        lost = {LOST: found[None]} if found[None] else {}
        return {digest[:12]: found[place] for place, digest in enumerate(self.digests)} | lost

    def under_others(self, texts: Mapping[str, str]) -> int:
        """Count those that wait to be sealed with the one that the database goes by."""
        return sum(bool(self.sealer.key_of(text, context)) for context, text in texts.items())

    def make_next(self) -> "Secrets":
        """Make the secrets as all will be after the rotation."""
        after = Secrets(self.file.parent, self.given, self.old)
        text = None if self.given else _keep(self.next_file, _new)
        after._current = base64.b64decode(text) if text else self.given
        after.sealer.use(*after._sealing())
        return after

    def kept(self, sealer: Sealer) -> str:
        """Return the keys that outlive this secret, sealed."""
        keys = {purpose: self._derive(purpose).hex() for purpose in OUTLIVE}
        return sealer.seal(json.dumps(keys).encode(), KEPT)

    def finish(self) -> None:
        """Make the next one the one from now on; the old ones stay beside it, for backups of before."""
        if self.next_file.exists():
            if older := _read(self.old_file):
                name = f"{self.old_file.name}.{_derived(base64.b64decode(older), 'check').hex()[:12]}"
                os.replace(self.old_file, self.old_file.with_name(name))
            os.link(self.file, self.old_file)
            os.replace(self.next_file, self.file)

    @property
    def codes(self) -> bytes:
        return self._derive("codes")

    @property
    def envelope(self) -> bytes:
        """Signs envelope senders."""
        return self._derive("envelope")

    @property
    def ownership(self) -> bytes:
        return self._derive("ownership")

    @property
    def erasure(self) -> bytes:
        return self._derive("erasure")

    @property
    def digest(self) -> str:
        """Return what the database recognises the master secret by."""
        return self._derive("check").hex()

    def demo(self, name: str) -> bytes:
        """Return the same bytes at every start."""
        return self._derive(f"demo/{name}/1") + self._derive(f"demo/{name}/2")

    @property
    def _master(self) -> bytes:
        self._current = self._current or self._masters()[0]
        return self._current

    def _masters(self) -> list[bytes]:
        """Return all that are here; the one that the database goes by first, else the one that was here first."""
        if self.given is not None:
            found = [self.given, *([self.old] if self.old else [])]
        else:
            _keep(self.file, _new)
            files = (self.file, self.next_file, self.old_file)
            found = [base64.b64decode(text) for one in files if (text := _read(one))]
        return sorted(dict.fromkeys(found), key=lambda one: one != self._current)

    def _sealing(self) -> list[bytes]:
        return [_derived(one, "sealing") for one in self._masters()]

    def _derive(self, purpose: str) -> bytes:
        kept = self._kept.get(purpose)
        return bytes.fromhex(kept) if kept else _derived(self._master, purpose)


def _derived(master: bytes, purpose: str) -> bytes:
    return hmac.new(master, f"heliograph/{purpose}".encode(), hashlib.sha256).digest()


def _new() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _read(path: Path) -> str:
    """Return its text; empty when there is none, or no longer."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def seen_numbers(data: Path) -> dict[int, int]:
    """Return, by the name of a database, the greatest number of it that this folder has recorded."""
    return {
        int(file.name): int(text)
        for file in data.glob("witness/*")
        if file.name.isdecimal() and (text := file.read_text()).isdecimal()
    }


def mark_of(file: Path) -> str | None:
    """Return what `mark` wrote; a copy of the file has none."""
    try:
        return os.getxattr(file, MARK).decode()
    except OSError:
        return None


def mark(file: Path) -> str | None:
    """Give the file a name that its copies do not have; None when this file system has no such attributes."""
    try:
        os.setxattr(file, MARK, secrets.token_hex(8).encode(), os.XATTR_CREATE)
    except OSError:
        pass  # another process was faster, or it cannot be
    return mark_of(file)


def seen_files(data: Path) -> dict[int, str]:
    """Return, by the name of a database that was not left in peace, the mark of its file."""
    return {int(file.stem): file.read_text() for file in data.glob("witness/*.file") if file.stem.isdecimal()}


def keep_file(data: Path, database: int, marked: str) -> None:
    _replace(data / "witness" / f"{database}.file", marked)


def forget_files(data: Path) -> None:
    """Forget them: after a clean stop the file may be moved: it is whole, and nobody goes on with another."""
    for file in data.glob("witness/*.file"):
        file.unlink(missing_ok=True)


def keep_number(data: Path, database: int, number: int) -> None:
    """Keep it unsynced: a number lost in a power cut does no harm, and one that was only begun is not read."""
    _replace(data / "witness" / str(database), str(number))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def mark_backup(data: Path) -> None:
    """Note that a backup is made now; whoever copies the database in another way touches the file, too."""
    data.mkdir(parents=True, exist_ok=True)
    (data / BACKED_UP).touch()


def backed_up_at(data: Path) -> int | None:
    """Return when, in ms; None when nobody said."""
    try:
        return (data / BACKED_UP).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def kept_instance(data: Path) -> str | None:
    """Return what the seats of this folder are called; None when no service has run on it."""
    with suppress(OSError):
        return _read(data / "instance") or None
    return None


def keep_address(data: Path, url: str) -> None:
    """Keep where the service of this folder was last started: commands beside it cannot know its port."""
    (data / "address").write_text(url)


def kept_address(data: Path) -> str | None:
    path = data / "address"
    return path.read_text().strip() if path.exists() else None


def _keep(path: Path, make: Callable[[], str]) -> str:
    """Return the text of the file; made once, whole and durable, also when two processes start together."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    return path.read_text().strip()
