"""Uploads of two teams at once, in as little memory as docs/operations.md says: nothing is killed, all arrive."""

import base64
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.npm import miss
from tests.proof.size import report
from tests.proof.test_install import running_demo
from tests.service import until

MEMORY = Path("/sys/fs/cgroup/memory")  # version 1
UPLOADS, SIZE = 30, 8_000_000


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory control group; whoever is in it is killed when there is no more."""
    folder = MEMORY / f"heliograph-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        miss("memory", f"no control group can be made: {error.strerror}")
    yield folder
    folder.rmdir()


@pytest.mark.parametrize(("budget", "limit_mb"), [(16, 200), (48, 320), (96, 400)])
def test_uploads_stay_within_the_memory_limit(group: Path, tmp_path: Path, budget: int, limit_mb: int) -> None:
    (group / "memory.limit_in_bytes").write_text(str(limit_mb << 20))
    content = base64.b64encode(b"%PDF-1.4\n" + os.urandom(SIZE)).decode()
    email = {
        "to": "delivered@simulator.test",
        "subject": "Hello",
        "text": "It works.",
        "attachments": [{"filename": "a.pdf", "content": content, "content_type": "application/pdf"}],
    }
    command = [
        "sh",
        "-c",
        f'echo $$ > {group}/cgroup.procs; exec "$@"',
        "sh",
        sys.executable,
        "-P",
        "-m",
        "heliograph.cli.main",
    ]
    with running_demo(command, tmp_path, HELIOGRAPH_BODY_MEMORY_MB=str(budget)) as (service, live, sandbox):

        def upload(number: int) -> int:
            key, more = (sandbox, {}) if number % 2 else (live, {"from": "hello@demo.test"})
            return service.post("/v1/emails", email | more, key=key).status

        with ThreadPoolExecutor(UPLOADS) as pool:
            assert list(pool.map(upload, range(UPLOADS))) == [202] * UPLOADS
        for key in (live, sandbox):
            path = f"/v1/emails?limit={UPLOADS}"
            until(
                lambda path=path, key=key: (
                    {m["status"] for m in service.get(path, key=key).json["data"]} == {"delivered"}
                )
            )
        peak = int((group / "memory.max_usage_in_bytes").read_text()) >> 20
    report("memory", f"body_memory_mb {budget} in {limit_mb} MB: {UPLOADS} uploads of 8 MB, peak {peak} MB")
