"""The `rlframe` program around its commands: flags of the config, help, errors in one line."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rlframe.utils.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    EnvError,
    NonFiniteError,
    UnsupportedSpaceException,
    WorkerError,
)

_EXIT_USER_MISTAKE = 2
_USER_MISTAKES = (ConfigError, DataError, EnvError, CheckpointError, UnsupportedSpaceException, OSError)
_FAILURES = (WorkerError, NonFiniteError)
#: Where a command finds its config flags: `ctx.meta[CONFIG_FLAGS]`, as `split_flags` gives them.
CONFIG_FLAGS = "rlframe.config_flags"
_ALGORITHM = "rlframe.algorithm"

app = typer.Typer(
    name="rlframe",
    help="Train, watch, play back, tune and compare reinforcement learning algorithms.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options at 80 columns
    context_settings={"max_content_width": 100},
)

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class ConfigFlagsCommand(TyperCommand):
    """A command that leaves options it does not know to the config, and lists them in the help of an algorithm."""

    #: Whether a flag takes all words up to the next one.
    many_values = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Sets the config flags aside, and parses the rest."""
        from rlframe.cli.flags import split_flags

        own = {name: not getattr(param, "is_flag", False) for param in self.get_params(ctx) for name in param.opts}
        own |= {name: False for param in self.get_params(ctx) for name in param.secondary_opts}
        kept, flags = split_flags(args, own, many_values=self.many_values)
        ctx.meta[CONFIG_FLAGS] = flags
        ctx.meta[_ALGORITHM] = next(iter(kept), "")
        return super().parse_args(ctx, kept)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help, and behind `rlframe train ALGO --help` the config keys of that algorithm."""
        super().format_help(ctx, formatter)
        algorithm = ctx.meta.get(_ALGORITHM, "")
        if algorithm and not algorithm.startswith("-"):
            from rlframe.cli.game_runs import settings_text
            from rlframe.cli.show import flags_text

            with reporting(debug=False):
                formatter.write("\n" + (settings_text() if algorithm == "decentralized" else flags_text(algorithm)))


class ManyValuesCommand(ConfigFlagsCommand):
    """The same, with several values for a flag: `--lr 1e-5 1e-2`."""

    many_values = True


@contextlib.contextmanager
def reporting(debug: bool) -> Iterator[None]:
    """Turns errors a user can mend into one message and an exit code, and warnings into one line each."""
    # Tune tells its own users how long a trial took to set up, and which GPU monitor to install.
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            with sigterm_interrupts():
                yield
        except KeyboardInterrupt:
            sys.stderr.write("aborted\n")
            raise typer.Exit(130) from None
        except (*_USER_MISTAKES, *_FAILURES) as error:
            if debug:
                raise
            sys.stderr.write(f"error: {error}\n")
            raise typer.Exit(1 if isinstance(error, _FAILURES) else _EXIT_USER_MISTAKE) from None


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Has SIGTERM end a command as Ctrl-C does, also where Ray has taken the signal when it started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        signal.alarm(0)  # Ray's handler, which calls this one, has the process aborted three seconds later
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except SystemExit as error:
        if error.code != signal.SIGTERM:
            raise
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    del category, filename, lineno, file, line
    sys.stderr.write(f"warning: {message}\n")
