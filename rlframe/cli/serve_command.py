"""`rlframe serve`: a trained policy behind HTTP."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from typing import Annotated

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.cli.play_commands import Best, Explore, RunPath
from rlframe.cli.trust import Trust
from rlframe.utils.errors import ConfigError

_NEEDED = ("starlette", "uvicorn")


@app.command()
def serve(  # noqa: PLR0913, PLR0917  one parameter for each option
    path: RunPath,
    host: Annotated[str, typer.Option(help="Where it listens; others than this machine need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    explore: Explore = False,
    session_timeout: Annotated[float, typer.Option(min=0.0, help="Seconds until a silent session ends.")] = 600.0,
    max_sessions: Annotated[int, typer.Option(min=1, help="How many may be open.")] = 1024,
    best: Best = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Serve a trained policy over HTTP: JSON or NumPy in, actions out. The token is RLFRAME_POLICY_TOKEN."""
    with reporting(debug):
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(f"rlframe serve needs {' and '.join(missing)}: pip install 'rlframe[serve]'")
        from rlframe.cli.evaluating import loaded_trainer
        from rlframe.serving.policy_service import PolicyService
        from rlframe.serving.web import ServiceServer, checked_token

        checked_token(host)  # before what takes long
        with loaded_trainer(path, best=best, trust=trust) as (trainer, _, checkpoint):
            service = PolicyService(
                trainer, explore=explore, session_timeout_s=session_timeout, most_sessions=max_sessions
            )
            server = ServiceServer(service, host, port)
            sys.stdout.write(f"checkpoint: {checkpoint}\nserved at:  {server.url}\n")
            sys.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):  # that is how it ends
                server.run()
