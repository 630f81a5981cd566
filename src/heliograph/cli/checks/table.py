"""All checks in the order of the report: name, command that runs the check, question, function, and fix."""

from collections.abc import Callable, Iterable, Iterator

from heliograph.bootstrap import MEND_LOG
from heliograph.cli.checks import machine, mail, store
from heliograph.cli.checks.findings import Command, Finding, Site, SiteCheck
from heliograph.runtime.clock import Clock
from heliograph.storage.diagnostics import Examination

REACH_OBJECTS = "correct HELIOGRAPH_ATTACHMENTS and HELIOGRAPH_S3_…, or let this machine reach the store"


def seen(look: Callable[[Examination], Iterable[Finding]]) -> Callable[[Site], Iterable[Finding]]:
    """Wrap a check of the database so that it is skipped if the database cannot be read."""
    return lambda site: look(site.seen) if site.seen else []


# fmt: off
CHECKS = (
    SiteCheck("database", "doctor", "Can it be read and written, and does its schema fit?", store.read_database,
              "start the database, correct the URL, or give this user the right to write"),
    SiteCheck("audit log", "doctor", "Is it as it was written?", seen(lambda it: [store.audit_log(it.audit)]),
              "compare it with a backup; operations.md says what each means"),
    SiteCheck("data folder", "both", "Can it be written?", lambda site: [machine.folder(site.settings.data)],
              "give it to the user that runs the service, or choose another with --data"),
    SiteCheck("attachments", "doctor", "Does the object store that keeps them answer?",
              lambda site: store.attachments(site.settings, store.list_objects), REACH_OBJECTS),
    SiteCheck("checkpoints", "doctor", "Is SQLite's log brought into the database?", store.log, MEND_LOG),
    SiteCheck("access", "doctor", "Can others read what is kept?", store.open_to_others),
    SiteCheck("disk", "both", "Is there room?", lambda site: [machine.disk(site.settings.data)],
              "make room, or move --data and the database to a larger disk"),
    SiteCheck("disk sync", "preflight", "How fast does it keep what is written?",
              lambda site: [machine.sync_rate(machine.there(site.settings.data))],
              "use a local SSD: every accepted message waits for one"),
    SiteCheck("memory", "preflight", "Is there enough for the processes?",
              lambda site: [machine.memory(site.settings, machine.available_mb())],
              "set HELIOGRAPH_BODY_MEMORY_MB lower, run fewer --processes, or add memory"),
    SiteCheck("secret", "doctor", "Is it there, for us alone, and the database's?", store.secret),
    SiteCheck("sealed", "doctor", "Which secret is what is kept sealed with?", store.sealed,
              "heliograph secret rotate goes on with the rest"),
    SiteCheck("clock", "both", "Was it ever set?", lambda _: [machine.clock(Clock().now())],
              "set the clock, and keep it with NTP"),
    SiteCheck("clock", "preflight", "Does NTP keep it?", lambda _: [machine.kept_clock(machine.clock_state())],
              "timedatectl set-ntp true, or install chrony"),
    SiteCheck("database", "preflight", "Can it be written, and does it survive a crash?", store.database_place,
              "start PostgreSQL, open its port to this machine, or correct --database"),
    SiteCheck("clock", "preflight", "Does the database's agree?", store.database_clock,
              "keep both by NTP: a process whose clock differs this much delivers nothing"),
    SiteCheck("attachments", "preflight", "Can an object be put, read, listed and removed?",
              lambda site: store.attachments(site.settings, store.try_objects), REACH_OBJECTS),
    SiteCheck("dns", "doctor", "Is there a name server?", mail.name_servers,
              "name a server in /etc/resolv.conf; only the simulator works without"),
    SiteCheck("carriers", "doctor", "Where does each channel go?", seen(lambda it: mail.carriers(it.setup)),
              "install a version that has it, or disable the carrier with heliograph apply"),
    SiteCheck("delivery", "doctor", "Is it paused?", seen(lambda it: mail.delivery(it.setup)), "heliograph resume"),
    SiteCheck("callbacks", "doctor", "Do carriers report what became of messages?",
              seen(lambda it: mail.callbacks(it.setup, it.callbacks, it.uses, Clock().now())),
              "give it the callback address on its page in the dashboard; the log says which were refused"),
    SiteCheck("sender", "doctor", "Has the platform's own domain its DNS records?",
              seen(lambda it: mail.platform_sender(it.setup))),
    SiteCheck("port", "both", "Is it free, or the service on it ours?", lambda site: [machine.port(site.settings)]),
    SiteCheck("smtp", "doctor", "Who can send by it?", mail.submission,
              "set HELIOGRAPH_SUBMISSION_CERT and HELIOGRAPH_SUBMISSION_KEY"),
    SiteCheck("mail ports", "preflight", "Are they free?", machine.other_ports),
    SiteCheck("dns", "preflight", "Does it say who takes mail for --probe?", mail.exchangers,
              "name servers that work in /etc/resolv.conf, and let port 53 out, by UDP and TCP"),
    SiteCheck("port 25", "preflight", "Is it open outward?", mail.way_out,
              "ask your provider to open port 25, or the firewall to let 587, 465 or 2525 out to a relay"),
    SiteCheck("helo name", "preflight", "Does the name that we greet with lead to our address?", mail.own_name,
              "set --public-url to https:// and the name by which mail servers and people shall know this machine"),
    SiteCheck("ptr", "preflight", "Does our address lead back to that name?", mail.way_back),
)
# fmt: on


def look(command: Command, site: Site) -> Iterator[Finding]:
    for check in of(command):
        yield from check.findings(site)


def of(command: Command) -> list[SiteCheck]:
    return [check for check in CHECKS if check.by in (command, "both")]


def listed(command: Command) -> str:
    """Return the list of a command's checks for its help text."""
    return "\n".join(["\b", "Checks:", *(f"  {check.name.ljust(12)} {check.asks}" for check in of(command))])
