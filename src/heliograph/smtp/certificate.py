"""TLS certificate of our SMTP servers, reloaded when its files change."""

import asyncio
import ssl
from pathlib import Path

import structlog
from cryptography import x509

log = structlog.get_logger()

LOOK_S = 1.0  # interval at which the files are checked
MEND = "write the certificate and its key to these files, readable by the service: they are read when they change"


class Certificate:
    """The current TLS certificate. `context` is used for new handshakes; open connections keep theirs."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Load the certificate and key.

        Raises OSError or ssl.SSLError if the files are missing or are not a certificate with its key.
        """
        self._files = cert, key
        self._seen = self._state()
        self.context = self._loaded()

    def _state(self) -> list[tuple[int, int, int]]:
        """Return modification time, size and inode of both files; empty if a file is missing."""
        try:
            return [(found.st_mtime_ns, found.st_size, found.st_ino) for found in map(Path.stat, self._files)]
        except OSError:  # a file may be missing while it is replaced
            return []

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        return context

    def renew(self) -> None:
        """Reload the certificate if a file changed. If the new files are invalid, the old certificate stays in use."""
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        known = log.bind(cert=str(self._files[0]), key=str(self._files[1]))
        try:
            self.context = self._loaded()
        except OSError as error:  # ssl.SSLError too
            known.error("the new SMTP certificate is not used, the old one still is", error=str(error), mend=MEND)
        else:
            known.info("the SMTP certificate was renewed: every new connection gets it")

    async def watch(self) -> None:
        """Check for changed files every LOOK_S seconds, forever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self.renew)


def certificate_until(file: Path | None) -> int | None:
    """Return the certificate's expiry in Unix ms; None if there is no file or it is invalid."""
    try:
        read = x509.load_pem_x509_certificate(file.read_bytes()) if file else None
    except (OSError, ValueError):
        return None
    return int(read.not_valid_after_utc.timestamp() * 1000) if read else None
