"""Rate of SMS from HTTP to an SMSC, compared with Jasmin and Kannel, in one run: `make bench-sms`.

All servers stay up and share the machine with their client and the SMSC; they take turns in each round.
"""

from contextlib import ExitStack
from pathlib import Path
from statistics import median

from mail_install import Missing
from matplotlib.figure import Figure
from ours import Revision, revisions
from processes import settle
from rounds import (
    RESULTS,
    Rounds,
    arguments,
    folder_on_disk,
    free_port,
    look_at_machine,
    made_by,
    spread,
    table,
    turns,
    verdict,
    write_part,
)
from sms_install import install_jasmin, install_kannel
from sms_jasmin import Jasmin
from sms_servers import WINDOW, Kannel, OurSms, SmsServer
from sms_smsc import Smsc

OURS = OurSms.name
# Expected rate, as a multiple of the other server's; Kannel stores nothing on disk.
EXPECTED = {"Jasmin": 3.0, "Jasmin, receipts wanted": 3.0, "Kannel": None, "Kannel, receipts wanted": 0.8}
WARM = 300  # messages before the measurements
BARE = 50_000  # submits for measuring the SMSC's own limit
ARRIVE_S = 60.0


class Bench:
    def __init__(self, smsc: Smsc) -> None:
        self.smsc, self.sent = smsc, 0
        self.rounds = Rounds()

    def send(self, server: SmsServer, request: str, messages: int) -> tuple[float, float, float]:
        """Send the messages, each of which must arrive exactly once.

        Returns the seconds to the last response and to the last submit, and CPU seconds.
        """
        used, (submits, different) = settle(server), self.smsc.count()
        started, answered = server.post(request, self.sent, messages)
        self.sent += messages
        ended = self.smsc.wait_for(submits + messages, ARRIVE_S)
        used = settle(server) - used
        if self.smsc.count() != (submits + messages, different + messages):
            raise SystemExit(f"{server.name} lost messages or sent some twice")
        return answered - started, ended - started, used

    def measure(self, server: SmsServer, name: str, messages: int, round_: int) -> None:
        to_answer, to_submit, used = self.send(server, server.requests()[name], messages)
        figures = {"rate": messages / to_submit, "accepted": messages / to_answer, "cpu": used / messages * 1000}
        self.rounds.note(name, round_, **figures)


def start_servers(
    folder: Path, smsc: int, compared: list[Revision], stack: ExitStack
) -> tuple[list[SmsServer], list[str]]:
    """Return the servers that are available, and why the others are not; the stack stops them."""
    servers: list[SmsServer] = [OurSms(revision, folder, smsc) for revision in compared]
    for ours in servers:
        stack.callback(ours.stop)
        ours.start()
    missing = []
    for kind, install in ((Jasmin, install_jasmin), (Kannel, install_kannel)):
        try:
            install()
            peer = kind(folder, smsc)
            stack.callback(peer.stop)
            peer.start()
            servers.append(peer)
        except (Missing, SystemExit) as error:
            why, *more = str(error).splitlines()
            missing.append(f"{kind.name} was not measured: {why}.")
            print("\n".join([missing[-1], *more]), flush=True)
    return servers, missing


# -- what the figures say -----------------------------------------------------------------------------------


def expectations(rounds: Rounds, names: list[str], compared: list[Revision]) -> str:
    rows = [["messages/s", "expected", *[revision.name or "now" for revision in compared[::-1]], ""]]
    ours = [revision.called(OURS) for revision in compared[::-1]]
    for peer, wanted in EXPECTED.items():
        if peer in names:
            found = [rounds.ratios(one, peer, "rate") for one in ours]
            met = verdict(median(found[-1]) >= wanted) if wanted else "the limit without durability"
            shown = [spread(one, ".2f") for one in found]
            rows.append([f"times {peer}", f"≥ {wanted:g}" if wanted else "–", *shown, met])
            shown = [spread(rounds.ratios(peer, one, "cpu"), ".2f") for one in ours]
            rows.append(["… by CPU time for a message", "–", *shown, ""])
    return table(*rows)


def figures(rounds: Rounds, durable: dict[str, str]) -> str:
    rows = [["server", "messages/s", "accepted/s", "CPU ms for a message", "durable"]]
    for name, kept in durable.items():
        rates = [spread(rounds.values(name, what)) for what in ("rate", "accepted")]
        rows.append([name, *rates, spread(rounds.values(name, "cpu"), ".2f"), kept])
    return table(*rows)


def plot(rounds: Rounds, names: list[str]) -> None:
    figure = Figure(figsize=(12, 3), layout="constrained")
    panels = (("messages a second, accept to submit", "rate"), ("CPU ms for a message", "cpu"))
    for place, (title, what) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 2, place)
        rounds.bars(axes, names, what, title)
        if place > 1:
            axes.set_yticklabels([])
    figure.savefig(RESULTS / "sms.svg", metadata={"Date": None})


def main() -> None:
    options = arguments(__doc__, scale=1.0, rounds=5)
    scale, rounds = (0.2, 1) if options.quick else (options.scale, options.rounds)
    compared = revisions(options.compare)
    with folder_on_disk() as folder, ExitStack() as stack:
        machine = look_at_machine(folder)
        smsc = Smsc(folder, free_port())
        stack.callback(smsc.stop)
        limit = smsc.limit(BARE, WINDOW)
        bench = Bench(smsc)
        servers, missing = start_servers(folder, smsc.port, compared, stack)
        for server in servers:
            for request in server.requests().values():
                bench.send(server, request, WARM)
        for round_ in range(1, rounds + 1):
            for server in turns(servers, round_):
                for name in server.requests():
                    bench.measure(server, name, round(server.messages * scale), round_)
    durable = {name: server.durable for server in servers for name in server.requests()}
    part = [
        expectations(bench.rounds, list(durable), compared),
        *missing,
        figures(bench.rounds, durable),
        f"The SMSC alone takes {limit:,.0f} messages/s from a bare loop with the same window.",
    ]
    print("\n\n".join(part))
    if not options.quick:
        plot(bench.rounds, list(durable))
        picture = "![messages a second and CPU time for a message](sms.svg)"
        write_part("sms", [made_by(options, machine), *part, picture])


if __name__ == "__main__":
    main()
