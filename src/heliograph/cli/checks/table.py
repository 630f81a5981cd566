"""All checks, in the order of the report, each with name, commands, question, function and fix."""

from collections.abc import Callable, Iterable, Iterator

from heliograph.bootstrap import WAL_FIX
from heliograph.cli.checks import machine, mail, store
from heliograph.cli.checks.findings import Command, Finding, Site, SiteCheck
from heliograph.runtime.clock import Clock
from heliograph.storage.diagnostics import Diagnostics

REACH_OBJECTS = "correct HELIOGRAPH_ATTACHMENTS and HELIOGRAPH_S3_…, or let this machine reach the store"


def with_diagnostics(check: Callable[[Diagnostics], Iterable[Finding]]) -> Callable[[Site], Iterable[Finding]]:
    """Wrap a check of stored data so that it is skipped if the database cannot be read."""
    return lambda site: check(site.diagnostics) if site.diagnostics else []


# fmt: off
CHECKS = (
    SiteCheck("database", "doctor", "Is it readable and writable, with the right schema?", store.check_database,
              "start the database, correct the URL, or grant this user write access"),
    SiteCheck("standby", "doctor", "Is it a standby of the database?", store.check_standby,
              "correct HELIOGRAPH_DATABASE_READ, or repair replication; reads use the primary meanwhile"),
    SiteCheck("audit log", "doctor", "Is the hash chain unbroken?",
              with_diagnostics(lambda diagnostics: [store.check_audit_log(diagnostics.audit)]),
              "compare it with a backup; see operations.md"),
    SiteCheck("data folder", "both", "Is the folder writable?", lambda site: [machine.check_folder(site.settings.data)],
              "make it writable for the service's user, or choose another with --data"),
    SiteCheck("attachments", "doctor", "Is the object store reachable?",
              lambda site: store.check_attachments(site.settings, store.list_objects), REACH_OBJECTS),
    SiteCheck("checkpoints", "doctor", "Is SQLite's WAL checkpointed?", store.check_wal, WAL_FIX),
    SiteCheck("access", "doctor", "Can other users read the data?", store.check_file_modes),
    SiteCheck("disk", "both", "Is there enough disk space?", lambda site: [machine.check_disk(site.settings.data)],
              "free disk space, or move --data and the database to a larger disk"),
    SiteCheck("disk sync", "preflight", "How many syncs a second can the disk do?",
              lambda site: [machine.check_sync_rate(machine.nearest_existing(site.settings.data))],
              "use a local SSD: every accepted message waits for a sync"),
    SiteCheck("memory", "preflight", "Is there enough memory for the processes?",
              lambda site: [machine.check_memory(site.settings, machine.available_mb())],
              "lower HELIOGRAPH_BODY_MEMORY_MB, run fewer --processes, or add memory"),
    SiteCheck("secret", "doctor", "Is it private, and does it match the database?", store.check_secret),
    SiteCheck("encryption", "doctor", "Which secret encrypts the stored values?", store.check_encryption,
              "heliograph secret rotate re-encrypts the rest"),
    SiteCheck("clock", "both", "Is the clock set?", lambda _: [machine.check_clock(Clock().now())],
              "set the clock and synchronize it with NTP"),
    SiteCheck("clock", "preflight", "Does NTP synchronize it?", lambda _: [machine.check_ntp(machine.clock_state())],
              "timedatectl set-ntp true, or install chrony"),
    SiteCheck("database", "preflight", "Is the database writable and crash-safe?", store.check_database_location,
              "start PostgreSQL, make its port reachable from this machine, or correct --database"),
    SiteCheck("citus", "both", "Can Citus run and move this cell?", store.check_citus),
    SiteCheck("clock", "preflight", "Does the database's clock agree?", store.check_database_clock,
              "synchronize both with NTP: a process with this difference delivers nothing"),
    SiteCheck("attachments", "preflight", "Can objects be written, read, listed and deleted?",
              lambda site: store.check_attachments(site.settings, store.try_operations), REACH_OBJECTS),
    SiteCheck("dns", "doctor", "Is a name server configured?", mail.check_name_servers,
              "add a name server to /etc/resolv.conf; only the simulator works without one"),
    SiteCheck("carriers", "doctor", "Which carriers serve each channel?",
              with_diagnostics(lambda diagnostics: mail.check_carriers(diagnostics.setup)),
              "install a version that supports it, or disable the carrier with heliograph apply"),
    SiteCheck("delivery", "doctor", "Is it paused?",
              with_diagnostics(lambda diagnostics: mail.check_delivery(diagnostics.setup)), "heliograph resume"),
    SiteCheck("callbacks", "doctor", "Do carriers send callbacks?",
              with_diagnostics(lambda diagnostics: mail.check_callbacks(diagnostics.setup, diagnostics.callbacks,
              diagnostics.carrier_counts, Clock().now())),
              "configure the callback URL from the carrier's dashboard page; the log has refused callbacks"),
    SiteCheck("sender", "doctor", "Are the DNS records of the platform's domain set?",
              with_diagnostics(lambda diagnostics: mail.check_platform_sender(diagnostics.setup))),
    SiteCheck("sources", "doctor", "Do source addresses have reverse DNS, and are they on no blocklist?",
              mail.check_source_addresses),
    SiteCheck("port", "both", "Is the port free, or used by this service?",
              lambda site: [machine.check_http_port(site.settings)]),
    SiteCheck("smtp", "doctor", "Who can submit mail by SMTP?", mail.check_submission,
              "set HELIOGRAPH_SUBMISSION_CERT and HELIOGRAPH_SUBMISSION_KEY"),
    SiteCheck("mail ports", "preflight", "Are the mail ports free?", machine.check_other_ports),
    SiteCheck("dns", "preflight", "Can the mail exchangers of --probe be resolved?", mail.check_exchangers,
              "use working name servers in /etc/resolv.conf, and allow outgoing port 53, UDP and TCP"),
    SiteCheck("port 25", "preflight", "Is outgoing port 25 open?", mail.check_port_25,
              "ask your provider to open port 25, or allow outgoing 587, 465 or 2525 to a relay"),
    SiteCheck("helo name", "preflight", "Does the EHLO host name resolve to our address?", mail.check_helo_name,
              "set --public-url to https:// and the public host name of this machine"),
    SiteCheck("ptr", "preflight", "Does our address resolve back to that name?", mail.check_reverse_dns),
)
# fmt: on


def run_checks(command: Command, site: Site) -> Iterator[Finding]:
    for check in checks_of(command):
        yield from check.findings(site)


def checks_of(command: Command) -> list[SiteCheck]:
    return [check for check in CHECKS if check.command in (command, "both")]


def help_epilog(command: Command) -> str:
    """Return the list of a command's checks for its help text."""
    return "\n".join(["\b", "Checks:", *(f"  {check.name.ljust(12)} {check.question}" for check in checks_of(command))])
