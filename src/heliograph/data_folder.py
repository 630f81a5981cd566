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

from heliograph.encryption import Cipher, DecryptionError

SLOTS_MAX = 1000  # maximum process slots of a data folder
MARK_ATTRIBUTE = "user.heliograph"  # extended attribute that marks the SQLite file
BACKED_UP = "backed-up"  # name of the empty file whose modification time is the time of the last backup
KEPT_KEYS_CONTEXT = "keys/kept"  # encryption context of the kept keys
NO_KNOWN_SECRET = "none that is here"  # label of the values that no local master secret decrypts
KEPT_PURPOSES = ("codes", "envelope", "ownership", "erasure")  # purposes of the keys that a rotation does not change


class ProcessSlot:
    """The identity of this process, held by a file lock: reused after a restart, never shared by two live processes.

    The lock ends with the process, also after kill -9, so that the next process in the slot may take over its claims.
    """

    def __init__(self, data: Path) -> None:
        folder = data / "seats"
        folder.mkdir(parents=True, exist_ok=True)
        instance = _read_or_create(data / "instance", lambda: secrets.token_hex(8))
        for number in range(SLOTS_MAX):
            file = open(folder / str(number), "w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self._file: IO[str] = file
            self.name = f"{instance}/{number}"
            return
        raise RuntimeError(f"{folder}: all {SLOTS_MAX} process slots are in use")

    def release(self) -> None:
        self._file.close()


def has_running_process(data: Path) -> bool:
    """Return whether a running process uses the data folder, which means that it holds the lock of a slot file."""
    for path in (data / "seats").glob("*"):
        with open(path, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
    return False


class Secrets:
    """The master secret, and the keys derived from it, one per purpose.

    The master secret is read on first use. Unless configured, it is generated at the first start and stored in a file
    of mode 0600.

    During a rotation there are several master secrets, and the database says which one is current. Keys that must
    survive a rotation (for hashes, signed addresses, DNS records) are those of the first master secret, stored
    encrypted in the database (ADR 0038).
    """

    def __init__(self, data: Path, configured: bytes | None, configured_old: bytes | None = None) -> None:
        self.configured, self.configured_old = configured, configured_old
        self.file, self.next_file, self.old_file = (data / name for name in ("secret", "secret.new", "secret.old"))
        self._current: bytes | None = None  # None until the database says which secret is current
        self._kept_keys: dict[str, str] = {}  # purpose → key in hex, unchanged by rotations of the master secret

    def exists(self) -> bool:
        """Return whether a master secret exists, so that reading a key does not create a secret."""
        return self.configured is not None or self.file.exists()

    @cached_property
    def cipher(self) -> Cipher:
        return Cipher(*self._encryption_keys(), find_keys=self._encryption_keys)

    def use_digest(self, digest: str | None, kept_keys: str | None) -> bool:
        """Switch to the master secret with this digest, which the database uses. Never creates a secret.

        Returns False if this data folder does not contain the secret.
        """
        if not self.exists() or digest is None:
            return digest is None
        if digest != self.digest or kept_keys is not None:
            current = next((master for master in self._masters() if _derive_key(master, "check").hex() == digest), None)
            if current is None:
                return False
            if current != self._master:
                self._current = current
                self.cipher.use_keys(*self._encryption_keys())
        if kept_keys is not None:
            with suppress(DecryptionError):
                self._kept_keys = json.loads(self.cipher.decrypt(kept_keys, KEPT_KEYS_CONTEXT))
        return True

    @property
    def digests(self) -> list[str]:
        """Return the digests of all local master secrets; the one used for encryption is first."""
        return [_derive_key(master, "check").hex() for master in self._masters()]

    def count_by_secret(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Count the ciphertexts (by context) that each master secret decrypts, keyed by the start of its digest."""
        count_by_key = Counter(self.cipher.key_index(text, context) for context, text in texts.items())
        undecryptable = {NO_KNOWN_SECRET: count_by_key[None]} if count_by_key[None] else {}
        return {digest[:12]: count_by_key[index] for index, digest in enumerate(self.digests)} | undecryptable

    def count_outdated(self, texts: Mapping[str, str]) -> int:
        """Count the ciphertexts that must be re-encrypted because only a previous master secret decrypts them."""
        return sum(bool(self.cipher.key_index(text, context)) for context, text in texts.items())

    def make_next(self) -> "Secrets":
        """Return the secrets as they will be after the rotation."""
        next_secrets = Secrets(self.file.parent, self.configured, self.configured_old)
        text = None if self.configured else _read_or_create(self.next_file, _new_secret)
        next_secrets._current = base64.b64decode(text) if text else self.configured
        next_secrets.cipher.use_keys(*next_secrets._encryption_keys())
        return next_secrets

    def encrypt_kept_keys(self, cipher: Cipher) -> str:
        """Return the keys that a rotation does not change, encrypted with `cipher`."""
        key_by_purpose = {purpose: self._derive_for(purpose).hex() for purpose in KEPT_PURPOSES}
        return cipher.encrypt(json.dumps(key_by_purpose).encode(), KEPT_KEYS_CONTEXT)

    def finish_rotation(self) -> None:
        """Make the next master secret the current one; previous ones stay beside it, for older backups."""
        if self.next_file.exists():
            if older := _read_text(self.old_file):
                name = f"{self.old_file.name}.{_derive_key(base64.b64decode(older), 'check').hex()[:12]}"
                os.replace(self.old_file, self.old_file.with_name(name))
            os.link(self.file, self.old_file)
            os.replace(self.next_file, self.file)

    @property
    def code_key(self) -> bytes:
        """Return the HMAC key of the digests of one-time codes."""
        return self._derive_for("codes")

    @property
    def envelope_key(self) -> bytes:
        """Return the key that signs envelope senders."""
        return self._derive_for("envelope")

    @property
    def ownership_key(self) -> bytes:
        """Return the key of the DNS records that prove the ownership of a domain."""
        return self._derive_for("ownership")

    @property
    def erasure_key(self) -> bytes:
        """Return the key of the hashes of erased addresses."""
        return self._derive_for("erasure")

    @property
    def digest(self) -> str:
        """Return the digest by which the database recognises the master secret."""
        return self._derive_for("check").hex()

    def demo_bytes(self, name: str) -> bytes:
        """Return demo bytes for `name`, the same at every start."""
        return self._derive_for(f"demo/{name}/1") + self._derive_for(f"demo/{name}/2")

    @property
    def _master(self) -> bytes:
        self._current = self._current or self._masters()[0]
        return self._current

    def _masters(self) -> list[bytes]:
        """Return all local master secrets: first the one in use; if that is unknown, first the oldest."""
        if self.configured is not None:
            masters = [self.configured, *([self.configured_old] if self.configured_old else [])]
        else:
            _read_or_create(self.file, _new_secret)
            files = (self.file, self.next_file, self.old_file)
            masters = [base64.b64decode(text) for file in files if (text := _read_text(file))]
        return sorted(dict.fromkeys(masters), key=lambda master: master != self._current)

    def _encryption_keys(self) -> list[bytes]:
        return [_derive_key(master, "sealing") for master in self._masters()]

    def _derive_for(self, purpose: str) -> bytes:
        kept_key = self._kept_keys.get(purpose)
        return bytes.fromhex(kept_key) if kept_key else _derive_key(self._master, purpose)


def _derive_key(master: bytes, purpose: str) -> bytes:
    return hmac.new(master, f"heliograph/{purpose}".encode(), hashlib.sha256).digest()


def _new_secret() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _read_text(path: Path) -> str:
    """Return the text of the file, or an empty string if it does not exist."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def read_database_counters(data: Path) -> dict[int, int]:
    """Return database id → highest counter that this data folder has recorded for that database."""
    return {
        int(file.name): int(text)
        for file in data.glob("witness/*")
        if file.name.isdecimal() and (text := file.read_text()).isdecimal()
    }


def read_mark(file: Path) -> str | None:
    """Return the attribute value that `mark_file` set on this file; None if missing, as on a copy of the file."""
    try:
        return os.getxattr(file, MARK_ATTRIBUTE).decode()
    except OSError:
        return None


def mark_file(file: Path) -> str | None:
    """Set an extended attribute on the file, which copies lack; return its value, or None if unsupported."""
    try:
        os.setxattr(file, MARK_ATTRIBUTE, secrets.token_hex(8).encode(), os.XATTR_CREATE)
    except OSError:
        pass  # another process was faster, or attributes are not supported
    return read_mark(file)


def read_file_marks(data: Path) -> dict[int, str]:
    """Return database id → last recorded file mark (see `mark_file`), for databases not shut down cleanly."""
    return {int(file.stem): file.read_text() for file in data.glob("witness/*.file") if file.stem.isdecimal()}


def save_file_mark(data: Path, database: int, file_mark: str) -> None:
    _replace(data / "witness" / f"{database}.file", file_mark)


def delete_file_marks(data: Path) -> None:
    """Delete the recorded file marks after a clean shutdown, so that a moved database file is not taken for a copy."""
    for file in data.glob("witness/*.file"):
        file.unlink(missing_ok=True)


def save_database_counter(data: Path, database: int, counter: int) -> None:
    """Record the database's counter without fsync, because losing it in a power cut is harmless."""
    _replace(data / "witness" / str(database), str(counter))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def mark_backup(data: Path) -> None:
    """Record that a backup is made now, as the time of the file BACKED_UP, which other backup tools may touch too."""
    data.mkdir(parents=True, exist_ok=True)
    (data / BACKED_UP).touch()


def backed_up_at(data: Path) -> int | None:
    """Return the time of the last backup in ms, or None if unknown."""
    try:
        return (data / BACKED_UP).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def read_instance(data: Path) -> str | None:
    """Return the instance name stored in the data folder; None if no service has used the folder yet."""
    with suppress(OSError):
        return _read_text(data / "instance") or None
    return None


def save_address(data: Path, url: str) -> None:
    """Record the URL of the running service for commands on this machine, which do not know its port."""
    (data / "address").write_text(url)


def read_address(data: Path) -> str | None:
    path = data / "address"
    return path.read_text().strip() if path.exists() else None


def _read_or_create(path: Path, make: Callable[[], str]) -> str:
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
