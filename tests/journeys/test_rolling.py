"""Two processes behind HAProxy are restarted in turn under load: no client sees an error."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import fresh_database
from tests.journeys.load import Load, check_all_arrived
from tests.npm import miss
from tests.proof.size import FULL, report, rounds, size
from tests.service import Service, free_port, until

CONFIG = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
RESTARTS = size("P10 rolling restarts")  # of each


@contextmanager
def haproxy(one: int, two: int) -> Iterator[int]:
    """Yield the port of HAProxy."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        miss("rolling restarts", "haproxy is not installed")
    port = free_port()
    names = ("PROXY_LISTEN", "PROXY_SERVER_ONE", "PROXY_SERVER_TWO")
    places = zip(names, (port, one, two), strict=True)
    servers = {name: f"127.0.0.1:{at}" for name, at in places}
    running = subprocess.Popen([program, "-q", "-db", "-f", str(CONFIG)], env=os.environ | servers)
    try:
        yield port
    finally:
        running.kill()
        running.wait()


def test_rolling_restart_causes_no_error(postgres: str, tmp_path: Path) -> None:
    url, ports = fresh_database(postgres), [free_port(), free_port()]
    with Service(url, tmp_path, stop_delay_ms=4_000) as service, haproxy(*ports) as proxy:
        service.apply()
        both = [service.start(port=port) for port in ports]
        door = Service(url, tmp_path)
        door.ports.append(proxy)
        until(lambda: service.get("/readyz", port=proxy).status == 200)
        with Load(door, clients=4 if FULL else 2) as load:
            for _ in rounds("P10", RESTARTS):
                for place, port in enumerate(ports):
                    load.more(20)
                    assert service.stop(both[place]) == 0
                    both[place] = service.start(port=port)
                    until(lambda port=port: service.get("/readyz", port=port).status == 200)
                    load.more(50 if FULL else 20)
        assert [(a.status, a.raw) for a in load.refused] == []
        assert load.broken == []
        check_all_arrived(url, load.accepted)
    report("P10", f"behind HAProxy: {2 * RESTARTS} restarts in turn, {len(load.accepted)} accepted, 0 error answers")
