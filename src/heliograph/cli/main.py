"""The entry point: the commands, and how every mistake becomes one line and an exit code."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from heliograph import __version__
from heliograph.cli.apply import apply
from heliograph.cli.backup import backup
from heliograph.cli.carriers import carriers
from heliograph.cli.credit import credit
from heliograph.cli.demo import demo
from heliograph.cli.doctor import doctor
from heliograph.cli.domain import domain
from heliograph.cli.erase import erase
from heliograph.cli.key import key
from heliograph.cli.listen import listen
from heliograph.cli.migrate import migrate
from heliograph.cli.pause import pause, resume
from heliograph.cli.reputation import reputation
from heliograph.cli.send import send
from heliograph.cli.serve import serve
from heliograph.cli.user import user
from heliograph.cli.webhook import webhook
from heliograph.rules.setup_file import SetupError
from heliograph.server import CannotListen
from heliograph.settings import BadSetting
from heliograph.storage.migrate import NewerSchema

MISTAKES = (BadSetting, SetupError, NewerSchema, CannotListen)
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="heliograph")
def cli() -> None:
    """Send transactional email, SMS, WhatsApp and one-time codes.

    \b
    Look around:       heliograph demo
    Set up and run:    heliograph apply setup.toml && heliograph serve
    Something wrong?   heliograph doctor

    Settings come from flags, then HELIOGRAPH_… variables, then the file of --config.
    """


for command in (
    serve,
    demo,
    apply,
    migrate,
    key,
    domain,
    webhook,
    carriers,
    reputation,
    credit,
    erase,
    send,
    listen,
    pause,
    resume,
    backup,
    doctor,
    user,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    sys.exit(_exit_code(arguments))


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
    except MISTAKES as error:
        _complain(str(error))
        return 1
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _complain(message: str) -> None:
    click.secho(f"heliograph: {' '.join(message.split())}", fg="red", err=True)


if __name__ == "__main__":
    main()
