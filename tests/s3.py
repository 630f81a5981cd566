"""A real S3 server on loopback (moto) with one bucket; it can be stopped and restarted with its data."""

import itertools
import re
import threading
import urllib.request
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

_numbers = itertools.count(1)  # all servers of a process have the same buckets


class S3Server:
    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._port = 0
        self.bucket = f"mail-files-{next(_numbers)}"
        self.start()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{self.bucket}", method="PUT"), timeout=30).close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "attachments": f"s3://{self.bucket}/blobs",
            "s3_endpoint": self.url,
            "s3_access_key": "AK",
            "s3_secret_key": "SK",
        }

    def names(self) -> list[str]:
        """Return the names of all objects."""
        with urllib.request.urlopen(f"{self.url}/{self.bucket}?list-type=2", timeout=30) as answer:
            return re.findall(r"<Key>(.*?)</Key>", answer.read().decode())

    def start(self) -> None:
        self._server = make_server("127.0.0.1", self._port, self._app, threaded=True)
        self._port = self._server.port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
