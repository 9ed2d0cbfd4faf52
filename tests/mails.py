"""A mail server that keeps what it is sent."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message


class _Smtp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self._say(220)
        while line := self.rfile.readline():
            verb = line.strip().upper()
            if verb == b"DATA":
                self._say(354)
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append(message_from_bytes(text))  # type: ignore[attr-defined]  # of `Mails`
            self._say(221 if verb == b"QUIT" else 250)

    def _say(self, code: int) -> None:
        self.wfile.write(b"%d\r\n" % code)


class Mails(socketserver.ThreadingTCPServer):
    """The server, on a free port of the loopback; its `mails` are in the order in which they came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Smtp)
        self.mails: list[Message] = []

    @property
    def connection(self) -> dict[str, object]:
        """Airflow's connection to it."""
        host, port = self.server_address[:2]
        extra = {"disable_ssl": True, "disable_tls": True}
        return {"conn_type": "smtp", "host": str(host), "port": port, "extra": extra}


def text_of(mail: Message) -> str:
    """The text of a mail of Airflow, which has parts."""
    (part,) = (part for part in mail.walk() if not part.is_multipart())
    return part.get_payload(decode=True).decode()  # type: ignore[union-attr]  # bytes, since it is decoded


@contextmanager
def serving() -> Iterator[Mails]:
    """A server, until the block ends."""
    with Mails() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()
