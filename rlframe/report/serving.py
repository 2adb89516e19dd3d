"""The page of runs that are still training: served to this machine, and made anew whenever it asks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rlframe.report.page import page_data, render_page
from rlframe.utils.errors import CheckpointError, ConfigError


class LivePage(ThreadingHTTPServer):
    """Serves `/`, the page, and `/data.json`, its numbers as they are now; call `serve_forever`.

    Only programs on this machine can reach it.

    Args:
        paths: Run directories; they may be empty still.
        port: Port to listen on; 0 takes a free one.

    Raises:
        ConfigError: If the port is taken.
    """

    daemon_threads = True

    def __init__(self, paths: Sequence[Path], port: int = 0) -> None:
        self.paths = list(paths)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise ConfigError(f"--port: {port} cannot be used: {error}") from error

    @property
    def url(self) -> str:
        """Returns the address of the page."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def data(self) -> dict[str, Any]:
        """Returns the data of this moment; without runs before the first result."""
        try:
            return page_data(self.paths, live=True)
        except (ConfigError, CheckpointError) as error:
            return {"made": "", "live": True, "groups": [], "runs": [], "waiting": str(error)}


class _Handler(BaseHTTPRequestHandler):
    server: LivePage

    def do_GET(self) -> None:
        """Answers a request."""
        if self.path == "/":
            self._send("text/html; charset=utf-8", render_page(self.server.data()))
        elif self.path == "/data.json":
            self._send("application/json", json.dumps(self.server.data(), allow_nan=False))
        elif self.path == "/favicon.ico":  # browsers ask for it, and log an error without
            self._send("image/x-icon", "")
        else:
            self.send_error(404)

    def _send(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes no line for each request."""
