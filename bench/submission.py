"""Rate of SMTP submission, compared with Postfix, in one run: `make bench-submission`.

The server has core 1; the load and PostgreSQL have core 0. Nothing is delivered.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path

from accept import KINDS
from mail_install import Missing, install_postfix, run
from mail_peers import POSTFIX, POSTFIX_PROGRAMS
from mail_servers import MAIL
from ours import TOKEN, Databases, Ours, revisions
from processes import Group
from rounds import (
    ROOT,
    SERVER_CORE,
    Rounds,
    arguments,
    folder_on_disk,
    free_port,
    look_at_machine,
    made_by,
    share_cores,
    spread,
    table,
    turns,
    write_part,
)
from servers import SEND_S

CONNECTIONS = (1, 20, 100)
WARM = 100
ABOUT = """# SMTP submission

`make bench-submission` measures how many emails per second SMTP submission accepts, compared with Postfix.

- **Email**: 5 KiB of text and HTML. Each connection stays open and sends `MAIL`, `RCPT`, `DATA` and the email, each
  after the reply to the previous one. On both servers, `250` follows a synced write.
- **Heliograph**: `serve --role api`, one process, with an API key at the start of each connection. Each email is
  parsed, checked by the rules of `POST /v1/emails` and stored as a message.
- **Postfix** as shipped, with its default number of processes, without `AUTH` and filters. Emails are put on hold, so
  that nothing is delivered during the measurement.
- **Rounds**: in turns, all on one core; ratios are for 20 connections. CPU time is that of all processes of the server
  per email, without PostgreSQL's."""


def letter() -> bytes:
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"], mail["Subject"] = MAIL["from"], "customer@example.com", MAIL["subject"]
    mail.set_content(MAIL["text"])
    mail.add_alternative(MAIL["html"], subtype="html")
    return mail.as_bytes()


class Postfix(Group):
    """Postfix as shipped, with its own queue."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid():
            raise Missing("only root can start it")
        name = f"Postfix {run(['postconf', '-d', 'mail_version']).split()[-1]}"
        place, port = folder / "postfix", free_port()
        args = {"folder": place, "domain": "bench.test", "sink": 9, "port": port}
        main = [line for line in POSTFIX.format(**args).splitlines() if "milter" not in line]
        main.append("smtpd_recipient_restrictions = check_client_access static:hold, permit_mynetworks, reject")
        for inner in ("etc", "queue", "data"):
            (place / inner).mkdir(parents=True)
        (place / "etc/main.cf").write_text("\n".join(main) + "\n")
        (place / "etc/master.cf").write_text(POSTFIX_PROGRAMS.format(**args))
        run(["chown", "postfix", str(place / "data")])
        command = ["postfix", "-c", str(place / "etc"), "start-fg"]
        super().__init__(name, command, folder / "postfix.log", core=SERVER_CORE, port=port)
        self.wait_for(("127.0.0.1", port))


def at(server: str, connections: int) -> str:
    return f"{server}, {connections}"


def measure(rounds: Rounds, server: Group, port: int, connections: int, mails: int, round_: int) -> None:
    token = TOKEN if isinstance(server, Ours) else ""
    for number in (WARM, mails):
        used = server.cpu_s()
        options = [f"--port={port}", f"--mails={number}", f"--connections={connections}", f"--token={token}"]
        done = subprocess.run(
            [sys.executable, str(ROOT / "bench/submit.py"), *options],
            input=letter(),
            check=True,
            stdout=subprocess.PIPE,
            timeout=SEND_S,
        )
    cpu = (server.cpu_s() - used) / mails * 1e6
    rounds.note(at(server.name, connections), round_, rate=mails / float(done.stdout), cpu=cpu)


def figures(rounds: Rounds, servers: list[str], peer: str) -> str:
    rows = [["mails/s (CPU µs each)", *(f"{number} at once" for number in CONNECTIONS), "times, rate", "of its CPU"]]
    for server in servers:
        names = [at(server, number) for number in CONNECTIONS]
        most, other = at(server, CONNECTIONS[1]), at(peer, CONNECTIONS[1])
        own = [f"{spread(rounds.values(name, 'rate'))}; {spread(rounds.values(name, 'cpu'))}" for name in names]
        ratios = [spread(rounds.ratios(most, other, figure), ".2f") for figure in ("rate", "cpu")]
        rows.append([server, *own, *(ratios if server != peer else ["–", "–"])])
    return table(*rows)


def main() -> None:
    args = arguments(__doc__, mails=2000, rounds=3)
    mails, rounds = (200, 1) if args.quick else (args.mails, args.rounds)
    share_cores()
    install_postfix()
    found = Rounds()
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        databases = Databases(folder)
        stack.callback(databases.stop)
        servers: list[tuple[Group, int]] = []
        for revision in revisions(args.compare):
            for kind, name in KINDS.items():
                port, own = free_port(), f"ours-{len(servers)}"
                environment = {"HELIOGRAPH_SUBMISSION_LISTEN": f"127.0.0.1:{port}"}
                ours = Ours(
                    revision, revision.called(f"Heliograph on {name}"), folder / own, databases.new(kind, own),
                    "--role", "api", core=SERVER_CORE, **environment,
                )  # fmt: skip
                servers.append((ours, port))
                stack.callback(ours.stop)
        peer = Postfix(folder)
        servers.append((peer, peer.port))
        stack.callback(peer.stop)
        for round_ in range(1, rounds + 1):
            for server, port in turns(servers, round_):
                for connections in CONNECTIONS:
                    measure(found, server, port, connections, mails, round_)
    print(shown := figures(found, [server.name for server, _ in servers], peer.name))
    if not args.quick:
        write_part("submission", [ABOUT, made_by(args, machine), shown])


if __name__ == "__main__":
    main()
