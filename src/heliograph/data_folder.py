"""Files of the data folder: master secret, process slots, last address, and the last known state of databases."""

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
KEPT = "keys/kept"  # encryption context of keys that outlive the master secret they were derived from
LOST = "none that is here"
OUTLIVE = ("codes", "envelope", "ownership", "erasure")


class Seat:
    """The identity of this process, held by a file lock: reused after a restart, never shared by two live processes.

    The lock ends with the process, also after kill -9, so the next process in the slot may take over its claims.
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
    """The master secret, and the keys derived from it, one per purpose.

    The master secret is read on first use. Unless configured, it is generated at the first start and stored in a file
    of mode 0600.

    During a rotation there are several master secrets, and the database says which one is current. Keys that must
    survive a rotation (for hashes, signed addresses, DNS records) are those of the first master secret, stored
    encrypted in the database (ADR 0038).
    """

    def __init__(self, data: Path, given: bytes | None, old: bytes | None = None) -> None:
        self.given, self.old = given, old
        self.file, self.next_file, self.old_file = (data / name for name in ("secret", "secret.new", "secret.old"))
        self._current: bytes | None = None  # None until the database says which secret is current
        self._kept: dict[str, str] = {}  # purpose → key in hex

    def exists(self) -> bool:
        """Return whether a master secret exists, so that reading a key does not create a secret."""
        return self.given is not None or self.file.exists()

    @cached_property
    def sealer(self) -> Sealer:
        return Sealer(*self._sealing(), look=self._sealing)

    def adopt(self, digest: str | None, kept: str | None) -> bool:
        """Switch to the master secret that the database uses; return False if that secret is not here.

        Never creates a secret.
        """
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
        """Return the digests of all local master secrets; the one used for encryption is first."""
        return [_derived(one, "check").hex() for one in self._masters()]

    def count(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Count the ciphertexts that each master secret decrypts, keyed by the start of its digest.

        `texts`: context → ciphertext.
        """
        found = Counter(self.sealer.key_of(text, context) for context, text in texts.items())
        lost = {LOST: found[None]} if found[None] else {}
        return {digest[:12]: found[place] for place, digest in enumerate(self.digests)} | lost

    def under_others(self, texts: Mapping[str, str]) -> int:
        """Count the ciphertexts that another local master secret decrypts and that must be re-encrypted."""
        return sum(bool(self.sealer.key_of(text, context)) for context, text in texts.items())

    def make_next(self) -> "Secrets":
        """Return the secrets as they will be after the rotation."""
        after = Secrets(self.file.parent, self.given, self.old)
        text = None if self.given else _keep(self.next_file, _new)
        after._current = base64.b64decode(text) if text else self.given
        after.sealer.use(*after._sealing())
        return after

    def kept(self, sealer: Sealer) -> str:
        """Return the keys that outlive this master secret, encrypted with `sealer`."""
        keys = {purpose: self._derive(purpose).hex() for purpose in OUTLIVE}
        return sealer.seal(json.dumps(keys).encode(), KEPT)

    def finish(self) -> None:
        """Make the next master secret the current one; previous ones stay beside it, for older backups."""
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
        """Return the key that signs envelope senders."""
        return self._derive("envelope")

    @property
    def ownership(self) -> bytes:
        return self._derive("ownership")

    @property
    def erasure(self) -> bytes:
        return self._derive("erasure")

    @property
    def digest(self) -> str:
        """Return the digest by which the database recognises the master secret."""
        return self._derive("check").hex()

    def demo(self, name: str) -> bytes:
        """Return demo bytes for `name`, the same at every start."""
        return self._derive(f"demo/{name}/1") + self._derive(f"demo/{name}/2")

    @property
    def _master(self) -> bytes:
        self._current = self._current or self._masters()[0]
        return self._current

    def _masters(self) -> list[bytes]:
        """Return all local master secrets: first the one that the database uses, if known, else the oldest."""
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
    """Return the text of the file, or an empty string if it does not exist."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def seen_numbers(data: Path) -> dict[int, int]:
    """Return database id → highest number that this data folder has recorded for that database."""
    return {
        int(file.name): int(text)
        for file in data.glob("witness/*")
        if file.name.isdecimal() and (text := file.read_text()).isdecimal()
    }


def mark_of(file: Path) -> str | None:
    """Return the mark written by `mark`, or None; a copy of the file has no mark."""
    try:
        return os.getxattr(file, MARK).decode()
    except OSError:
        return None


def mark(file: Path) -> str | None:
    """Mark the file with an extended attribute that copies lack; return None if not supported."""
    try:
        os.setxattr(file, MARK, secrets.token_hex(8).encode(), os.XATTR_CREATE)
    except OSError:
        pass  # another process was faster, or attributes are not supported
    return mark_of(file)


def seen_files(data: Path) -> dict[int, str]:
    """Return database id → mark of its file, for databases that were not shut down cleanly."""
    return {int(file.stem): file.read_text() for file in data.glob("witness/*.file") if file.stem.isdecimal()}


def keep_file(data: Path, database: int, marked: str) -> None:
    _replace(data / "witness" / f"{database}.file", marked)


def forget_files(data: Path) -> None:
    """Delete the recorded file marks: after a clean shutdown the complete file may be moved."""
    for file in data.glob("witness/*.file"):
        file.unlink(missing_ok=True)


def keep_number(data: Path, database: int, number: int) -> None:
    """Record the number without fsync: losing it in a power cut is harmless, and replacing the file is atomic."""
    _replace(data / "witness" / str(database), str(number))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def mark_backup(data: Path) -> None:
    """Record that a backup is made now. Other backup tools touch the same file."""
    data.mkdir(parents=True, exist_ok=True)
    (data / BACKED_UP).touch()


def backed_up_at(data: Path) -> int | None:
    """Return the time of the last backup in ms, or None if unknown."""
    try:
        return (data / BACKED_UP).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def kept_instance(data: Path) -> str | None:
    """Return the instance name of the process slots in this folder, or None if no service has run here."""
    with suppress(OSError):
        return _read(data / "instance") or None
    return None


def keep_address(data: Path, url: str) -> None:
    """Record the URL of the running service for commands on this machine, which do not know its port."""
    (data / "address").write_text(url)


def kept_address(data: Path) -> str | None:
    path = data / "address"
    return path.read_text().strip() if path.exists() else None


def _keep(path: Path, make: Callable[[], str]) -> str:
    """Return the text of the file; create the file durably and exactly once, also if two processes start together."""
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
