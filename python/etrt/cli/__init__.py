"""The command ``etrt``."""

from __future__ import annotations

import sys

import typer

from etrt.cli.demo_command import demo_command
from etrt.cli.doctor_command import doctor_command
from etrt.cli.export_command import export_command
from etrt.cli.generate_command import generate_command
from etrt.cli.inspect_command import inspect_command
from etrt.cli.wrap_command import wrap_command
from etrt.errors import EtrtError, ExportError

commands = typer.Typer(
    help="TensorRT delegate for ExecuTorch whose KV caches have an owner.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
commands.command("export")(export_command)
commands.command("generate")(generate_command)
commands.command("inspect")(inspect_command)
commands.command("wrap")(wrap_command)
commands.command("demo")(demo_command)
commands.command("doctor")(doctor_command)


def app() -> None:
    """Runs the command line. An error is one line on stderr and a non-zero exit code."""
    try:
        code = commands(standalone_mode=False)
    except typer.TyperException as error:
        message = error.format_message().replace("\n", " ")
        _fail(f"{message} (etrt --help lists what there is)", error.exit_code)
    except (EtrtError, ExportError, OSError, ValueError) as error:
        _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", 130)
    sys.exit(code or 0)


def _fail(message: str, code: int) -> None:
    print(f"etrt: {message}", file=sys.stderr)
    sys.exit(code)
