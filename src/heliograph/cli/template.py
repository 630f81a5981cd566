"""`heliograph template`: lints templates in files."""

import os
from typing import BinaryIO

import click

from heliograph.app import CARRIER_FACTORIES
from heliograph.cli.apply import format_problem
from heliograph.cli.printing import print_list
from heliograph.domain.setup.setup_file import SetupError, parse_setup_file
from heliograph.templates.policy.setup_lint import lint_file, lint_html


@click.group()
def template() -> None:
    """Lint templates in files.

    This command does not edit templates: use a setup file (heliograph apply), the API or the dashboard for that.
    """


@template.command()
@click.argument("file", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="Print the problems as JSON.")
def lint(file: BinaryIO, as_json: bool) -> None:
    """Check the templates of a setup FILE, or an HTML or MJML file, without a service. Exit code 1 on errors.

    \b
    heliograph template lint setup.toml
    heliograph template lint receipt.html
    """
    try:
        text = file.read().decode("utf-8-sig")
        is_html = file.name.lower().endswith((".html", ".htm", ".mjml"))
        problems = (
            lint_html(file.name, text)
            if is_html
            else lint_file(parse_setup_file(text, os.environ, name=file.name, supported=CARRIER_FACTORIES))
        )
    except (ValueError, SetupError) as error:
        raise click.ClickException(str(error)) from None
    print_list(as_json, problems, lambda problem: f"{problem.level}: {problem.template_id}: {format_problem(problem)}")
    if not as_json:
        click.echo(f"{len(problems)} problems" if problems else "no problems", err=True)
    if any(problem.level == "error" for problem in problems):
        raise SystemExit(1)
