"""TLS certificate of our SMTP servers, reloaded when its files change."""

import asyncio
import ssl
from pathlib import Path

import structlog
from cryptography import x509

log = structlog.get_logger()

CHECK_INTERVAL_S = 1.0  # interval at which the files are checked
FIX = "write a certificate and its key to these files, readable by the service: they are reloaded when they change"


class Certificate:
    """The current TLS certificate. `context` is used for new handshakes; open connections keep theirs."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Load the certificate and key; raises OSError or ssl.SSLError if a file is missing or invalid."""
        self._files = cert, key
        self._loaded_state = self._file_state()
        self.context = self._load_context()

    def _file_state(self) -> list[tuple[int, int, int]]:
        """Return modification time, size and inode of both files, to detect changes; empty if a file is missing."""
        try:
            return [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in map(Path.stat, self._files)]
        except OSError:  # a file may be missing while it is replaced
            return []

    def _load_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        return context

    def reload_if_changed(self) -> None:
        """Reload the certificate if a file changed. If the new files are invalid, the old certificate stays in use."""
        state = self._file_state()
        if state == self._loaded_state:
            return
        self._loaded_state = state
        file_log = log.bind(cert=str(self._files[0]), key=str(self._files[1]))
        try:
            self.context = self._load_context()
        except OSError as error:  # ssl.SSLError too
            file_log.error("cannot load the new SMTP certificate: the old one stays in use", error=str(error), fix=FIX)
        else:
            file_log.info("SMTP certificate reloaded: new connections use it")

    async def watch(self) -> None:
        """Check for changed files every CHECK_INTERVAL_S seconds, forever."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await asyncio.to_thread(self.reload_if_changed)


def certificate_expiry(file: Path | None) -> int | None:
    """Return the certificate's expiry in Unix ms; None if there is no file or it is invalid."""
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes()) if file else None
    except (OSError, ValueError):
        return None
    return int(certificate.not_valid_after_utc.timestamp() * 1000) if certificate else None
