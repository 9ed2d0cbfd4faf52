"""An OAuth 2 token endpoint on the loopback: client credentials in, a token out."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def token_endpoint(make_token: Callable[[], str], *, client: str, secret: str) -> Iterator[str]:
    """Its address; it gives `make_token()` to the one client that knows the secret, and 401 to others."""
    login = "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            known = self.headers.get("authorization") == login
            token = {"access_token": make_token(), "token_type": "bearer", "expires_in": 600}
            body = json.dumps(token if known else {"error": "invalid_client"}).encode()
            self.send_response(200 if known else 401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()
