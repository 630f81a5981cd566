"""Two PostgreSQL servers on loopback: a primary and its synchronous standby, which fail over and switch over."""

import os
import signal
from pathlib import Path

from tests import postgres_server
from tests.postgres_server import PostgresServer
from tests.service import free_port

UNTIL_STANDBY_FOLLOWS = (
    "SET statement_timeout = '300s'",
    """DO $$ BEGIN
        WHILE NOT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming') LOOP
            PERFORM pg_sleep(0.05);
            PERFORM pg_stat_clear_snapshot();
        END LOOP;
    END $$""",
    "ALTER SYSTEM SET synchronous_standby_names = '*'",
    "SELECT pg_reload_conf()",
)


class Server:
    def __init__(self, data: Path, port: int, primary: "Server | None" = None) -> None:
        """A copy of `primary`, which it follows; without one, a new primary."""
        self._data = data
        self.address = f"127.0.0.1:{port}"
        self.url = f"postgresql://postgres@{self.address}/postgres?sslmode=disable"
        if primary:
            primary.copy_to(data)
            self._be_standby_of(primary)
        options = {"listen_addresses": "127.0.0.1", "port": str(port), "wal_keep_size": "512MB"}
        self._server = PostgresServer(data, **options)

    def copy_to(self, data: Path) -> None:
        self._server.run("pg_basebackup", "-d", self.url, "-D", str(data), "-c", "fast")

    def stop(self) -> None:
        """Stop without a checkpoint, as at a crash."""
        self._server.stop()

    def promote(self) -> None:
        self._server.run("pg_ctl", "promote", "-D", str(self._data))

    def hand_over_to(self, standby: "Server") -> None:
        """A stop as Patroni's: it ends all connections, and the standby first receives everything."""
        self._server.stop(signal.SIGINT)
        standby.promote()
        self._be_standby_of(standby)
        self._server.start()

    def wait_for_standby(self) -> None:
        """From now on each commit waits for the standby."""
        commands = [part for command in UNTIL_STANDBY_FOLLOWS for part in ("-c", command)]
        self._server.run("psql", self.url, *commands)

    def _be_standby_of(self, primary: "Server") -> None:
        host, _, port = primary.address.partition(":")
        lines = f"primary_conninfo = 'host={host} port={port} user=postgres'\n"
        for name, text in (("standby.signal", ""), ("postgresql.auto.conf", lines)):
            path = self._data / name
            path.write_text(text, "utf-8")
            os.chown(path, postgres_server.server_uid(), -1)


class Pair:
    def __init__(self, folder: Path) -> None:
        self._primary = Server(folder / "one", free_port())
        self._standby = Server(folder / "two", free_port(), self._primary)
        self._primary.wait_for_standby()
        hosts = f"{self._primary.address},{self._standby.address}"
        self.url = f"postgresql://postgres@{hosts}/postgres?sslmode=disable"

    @property
    def primary_url(self) -> str:
        return self._primary.url

    def fail_over(self) -> None:
        """Stop the primary without a checkpoint, and promote the standby."""
        self._primary.stop()
        self._standby.promote()

    def switch_over(self) -> None:
        """Let the two change places, and wait until the standby follows."""
        self._primary.hand_over_to(self._standby)
        self._primary, self._standby = self._standby, self._primary
        self._primary.wait_for_standby()

    def stop(self) -> None:
        self._primary.stop()
        self._standby.stop()
