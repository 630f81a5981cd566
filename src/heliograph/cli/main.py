"""Entry point: lists the commands, and turns every error into a one-line message and an exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from heliograph import __version__

INTERRUPTED_EXIT_CODE = 130
OWNER_ONLY_UMASK = 0o077  # only the owner can read created files (database, WAL, attachments, backup)

# command → its line in the help. Each command is imported only when called, because importing all takes a second.
COMMANDS = {
    "api": "Send a request to the API of a running service.",
    "apply": "Apply a setup file.",
    "approval": "Approve or refuse templates, layouts and senders.",
    "audit": "Export the audit log, print or check its head.",
    "backup": "Copy the database and the attachments to a folder.",
    "carriers": "Show carriers; enable, disable and prioritize them.",
    "cell": "Add, list and move cells, each in a schema of its own.",
    "config": "Print every setting with its source.",
    "copy": "Copy everything to another database.",
    "deadletter": "List, retry or drop messages in the dead-letter queue.",
    "demo": "Run a demo with two teams, and print example requests.",
    "doctor": "Check database, folders, disk, secret, clock, DNS and port.",
    "domain": "Manage sending domains and check their DNS records.",
    "erase": "Erase an address or phone number from a team's data.",
    "export": "Export a team's data about an address or phone number.",
    "import": "Import data from another service.",
    "key": "Create, list, rotate and revoke API keys.",
    "listen": "Forward a team's events to a local program.",
    "migrate": "Migrate the database to this version's schema.",
    "pause": "Pause delivery; messages are still accepted and queued.",
    "preflight": "Check machine, network and database before installation.",
    "reputation": "Show bounce and complaint rates; resume paused teams.",
    "resume": "Resume delivery; queued messages are sent.",
    "secret": "Show, rotate or replace the master secret.",
    "send": "Send one message through a running service.",
    "serve": "Run the service until SIGTERM or Ctrl-C.",
    "suppression": "Import addresses into a team's suppression list.",
    "template": "Lint templates in files.",
    "user": "Manage dashboard users and sign-in links.",
}
MODULE_BY_COMMAND = {"import": "import_", "resume": "pause"}  # commands whose module has a different name


def load_command(name: str) -> click.Command:
    module = import_module(f"heliograph.cli.{MODULE_BY_COMMAND.get(name, name)}")
    command: click.Command = getattr(module, f"{name}_" if iskeyword(name) else name)
    return command


class Commands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is None or name is None:
            return name, command, rest
        return name, load_command(name), rest


@click.group(
    cls=Commands,
    commands=[click.Command(name, help=summary) for name, summary in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="heliograph")
def cli() -> None:
    """Send transactional email, SMS, WhatsApp and one-time codes.

    \b
    Try it:            heliograph demo
    Set up and run:    heliograph apply setup.toml && heliograph serve
    Find problems:     heliograph doctor
    New machine:       heliograph preflight

    Settings come from flags, then HELIOGRAPH_… variables, then the --config file.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    previous_umask = os.umask(OWNER_ONLY_UMASK)
    try:
        code = _exit_code(arguments)
    finally:
        os.umask(previous_umask)
    sys.exit(code)


def _exit_code(arguments: Sequence[str] | None) -> int:
    try:
        code = cli.main(arguments, prog_name="heliograph", standalone_mode=False)
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "heliograph"
        _print_error(f"{error.format_message()} See: {path} --help")
        return error.exit_code
    except click.ClickException as error:
        _print_error(error.format_message())
        return error.exit_code
    except click.Abort:
        return INTERRUPTED_EXIT_CODE
    return code if isinstance(code, int) else 0


def _print_error(message: str) -> None:
    click.secho(f"heliograph: {' '.join(message.split())}", fg="red", err=True)


if __name__ == "__main__":
    main()
