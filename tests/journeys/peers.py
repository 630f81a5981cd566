"""Fake carriers in processes of their own; each prints a line of JSON for every request and response."""

import json
import os
import threading
from typing import Any, Self

from tests.forks import Forked
from tests.service import until


class Peer:
    """Runs `module` until the block ends; the first line that it prints has its port."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.told: list[dict[str, Any]] = []
        self._program = f"from {module} import main; main()"
        self._arguments = arguments

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, port: int = 0) -> None:
        self._process = Forked(self._program, [*self._arguments, "--port", str(port)], os.environ)
        ports: list[int] = []

        def read() -> None:
            with self._process.stdout as lines:
                for line in lines:
                    told = json.loads(line)
                    if "port" in told:
                        ports.append(told["port"])
                    self.told.append(told)

        threading.Thread(target=read, daemon=True).start()
        self.port = until(lambda: ports)[0]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def all(self, name: str) -> list[Any]:
        """Return the values of all lines with this name."""
        return [told[name] for told in list(self.told) if name in told]
