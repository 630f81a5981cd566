"""The entry point: lists the commands and turns every error into a one-line message and an exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from heliograph import __version__

INTERRUPTED = 130
OURS_ALONE = 0o077  # umask: only the owner can read files made here (database, WAL, attachments, backup)

# Command → its line in the help. Its module is imported when called, because importing all takes a second.
COMMANDS = {
    "apply": "Apply a setup file.",
    "audit": "Export the audit log, print its end, check a noted end.",
    "backup": "Copy the database and the attachments into a folder.",
    "capacity": "Measure this machine: messages a day, and what limits it.",
    "carriers": "Carriers: which can be reached, on and off, and their order.",
    "config": "Print every setting and where its value came from.",
    "credit": "Top up a team's credit, or correct it.",
    "deadletter": "Messages that were put aside: list, retry, drop.",
    "demo": "Run the service with two teams, and print lines to copy.",
    "doctor": "Check database, folders, disk, secret, clock, DNS and port.",
    "domain": "Sending domains: what to set in DNS, and whether it is there.",
    "erase": "Erase an address or a number from all records of a team.",
    "export": "Write down all that a team's records hold about an address.",
    "import": "Suppressions, domains and templates of another service.",
    "key": "Make, list, rotate and revoke API keys.",
    "layout": "Layouts: list, approve or archive them.",
    "listen": "Forward a team's events to a program on this machine.",
    "migrate": "Bring the database to the schema of this version.",
    "pause": "Pause delivery: messages are still accepted, and wait.",
    "preflight": "Check machine, network and database before setting up.",
    "reputation": "Bounces and complaints of each team, and the end of a pause.",
    "resume": "Resume delivery after a pause: what waited is sent.",
    "secret": "Show, rotate or replace the master secret.",
    "send": "Send one message through a running service.",
    "sender": "Domains, names and sender ids that wait for a decision.",
    "serve": "Run the service until SIGTERM or Ctrl-C.",
    "suppression": "The suppression list of a team: show it, add, remove, import.",
    "team": "Teams: list, make, suspend, take live.",
    "template": "Templates: list, archive, approve or refuse them.",
    "user": "People of the dashboard: list, add, change, let one in.",
    "webhook": "Webhooks: where events are sent, and how each delivery went.",
}
MODULES = {"import": "import_", "resume": "pause"}  # commands whose module has another name


class Commands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        if listed is None or name is None:
            return name, listed, rest
        function = f"{name}_" if iskeyword(name) else name
        return name, getattr(import_module(f"heliograph.cli.{MODULES.get(name, name)}"), function), rest


@click.group(
    cls=Commands,
    commands=[click.Command(name, help=line) for name, line in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="heliograph")
def cli() -> None:
    """Send transactional email, SMS, WhatsApp and one-time codes.

    \b
    Look around:       heliograph demo
    Set up and run:    heliograph apply setup.toml && heliograph serve
    Something wrong?   heliograph doctor
    A new machine:     heliograph preflight

    Settings come from flags, then HELIOGRAPH_… variables, then the file of --config.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    before = os.umask(OURS_ALONE)
    try:
        code = _exit_code(arguments)
    finally:
        os.umask(before)
    sys.exit(code)


def _exit_code(arguments: Sequence[str] | None) -> int:
    try:
        code = cli.main(arguments, prog_name="heliograph", standalone_mode=False)
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "heliograph"
        _complain(f"{error.format_message()} See: {path} --help")
        return error.exit_code
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _complain(message: str) -> None:
    click.secho(f"heliograph: {' '.join(message.split())}", fg="red", err=True)


if __name__ == "__main__":
    main()
