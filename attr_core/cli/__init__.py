"""The ``attrkit`` command: log, inspect, explain. One module per family of commands.

Exit codes: 0 done; 1 something broke that should not have; 2 input, option or model that the message says how to mend;
130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from attr_core import __version__
from attr_core.cli import (
    _bench_set,
    _cache,
    _calibrate,
    _capabilities,
    _diagnose,
    _doctor,
    _eval,
    _import,
    _inspect,
    _report,
    _traces,
    _worker,
)
from attr_core.cli._shared import INTERRUPTED
from attr_core.errors import AttrkitError

__all__ = ["app", "main"]

app = typer.Typer(
    name="attrkit",
    help="Which piece of the context caused which claim of an LLM's answer.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(epilog=_inspect.DEMO_EXAMPLE)(_inspect.demo)
app.command(epilog=_inspect.INSPECT_EXAMPLES)(_inspect.inspect)
app.command(epilog=_diagnose.DIAGNOSE_EXAMPLES)(_diagnose.diagnose)
app.command(epilog=_diagnose.PROVE_EXAMPLES)(_diagnose.prove)
app.command("eval", epilog=_eval.EVAL_EXAMPLES)(_eval.evaluate)
app.command("compare", epilog=_eval.COMPARE_EXAMPLES)(_eval.compare)
app.command(epilog=_report.EXAMPLES)(_report.report)
app.command(epilog=_calibrate.EXAMPLES)(_calibrate.calibrate)
app.command(epilog=_worker.EXAMPLES)(_worker.worker)
app.add_typer(_traces.app, name="traces", epilog=_traces.EXAMPLES)
app.command(name="import", epilog=_import.EXAMPLES)(_import.import_)
app.command(name="bench-set", epilog=_bench_set.EXAMPLES)(_bench_set.bench_set)
app.add_typer(_cache.app, name="cache")
app.command(epilog=_capabilities.EXAMPLES)(_capabilities.capabilities)
app.command(epilog=_doctor.EXAMPLES)(_doctor.doctor)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # a stream of the host's own, or a closed one
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = app(args=arguments, prog_name="attrkit", standalone_mode=False)
    except typer.Abort:
        _complain("stopped")
        return INTERRUPTED
    except typer.TyperException as error:
        _complain(error.format_message())
        return 2
    except AttrkitError as error:
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        _complain("interrupted; what was measured is kept")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _complain(f"the output could not be written: {error.strerror or error}")
        return 2
    if code == INTERRUPTED:  # typer has caught the interrupt
        _complain("interrupted; what was measured is kept")
    return int(code or 0)


def _complain(message: str) -> None:
    from attr_core.reports.terminal import visible

    print(f"attrkit: {visible(message)}", file=sys.stderr)  # noqa: T201


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"attrkit {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
