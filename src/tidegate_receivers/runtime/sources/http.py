"""An HTTP server whose answer 202 means that the broker has every record of the request.

    curl --json '{"id": 1}' http://127.0.0.1:8080/

| answer | when |
|---|---|
| 202 | all records are acknowledged; the body has their number |
| 400 | the body is not JSON |
| 401 | the token is missing or wrong |
| 404, 405, 415 | another path, method or content type |
| 408 | the body did not come in time |
| 413 | the body, a record, or all records together are too large |
| 429 | the rate is used up, or the pipeline is behind; `Retry-After` has seconds |
| 503 | the broker is away, or the buffer is full; `Retry-After` has seconds |

Whatever is not 202 is a nack. After a 503 the records may have been landed all the same, where the broker's answer was late or
lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import math
import time
from dataclasses import dataclass, field

from aiohttp import HttpVersion11, hdrs, web

from tidegate.core.model.errors import NotDelivered, Overloaded, RecordRefused, RequestError, TidegateError
from tidegate_receivers.config.receiver import Http, Tls
from tidegate_receivers.rules.limits import MEMORY_BYTES
from tidegate_receivers.rules.records import CONTENT_TYPES, field_key, records_of
from tidegate_receivers.runtime.intake import Ticket
from tidegate_receivers.runtime.listening import Listener, check_listener, server_context
from tidegate_receivers.runtime.receiver import RecordSource

MAX_HEADERS, MAX_HEADER_BYTES = 64, 4096
"""Of a request. They are held before it is known who sends, for each connection."""
SWEEP_S = 0.5
POLL_S = 0.02
RETRY_AFTER_S = "1"
_LATE = "late"


@dataclass(eq=False, kw_only=True)
class HttpSource(RecordSource):
    """POST requests of JSON; see this module for the answers.

    Args:
        host: what to listen on.
        port: 0: a free one (`listening_on` has it).
        http: path, size and names of the requests that it takes.
        token: what `Authorization: Bearer …` has to hold; None: anybody may send.
        tls: needed, with a token or a CA for client certificates, for anything but the loopback.
        idle_s: a connection without a complete request for so many seconds is closed, and a body has to come in this time.
        max_connections: more are closed at once; those whose TLS handshake goes on count.
        key_header: the request's header with the key of its records.
        answer_s: seconds after which a request without an acknowledgement is answered 503.
        linger_s: seconds that open connections are served when the lease has ended; each answer asks the sender to close.

    Raises:
        ConfigError: others could send.
    """

    host: str = "127.0.0.1"
    port: int = 0
    http: Http = field(default_factory=Http)
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    idle_s: float = 60.0
    max_connections: int = 1000
    key_header: str = "Tidegate-Key"
    answer_s: float = 10.0
    linger_s: float = 1.0

    def __post_init__(self) -> None:
        check_listener(self.host, self.port, self.tls, token=self.token)
        self._authorization = None if self.token is None else _hash(f"Bearer {self.token}")
        self._numbers = itertools.count()
        self._listener: Listener | None = None
        self._server: web.Server | None = None
        self._peers: dict[web.RequestHandler, _Peer] = {}
        self._closing = False

    @property
    def listening_on(self) -> int | None:
        """The port, while it is open."""
        return self._listener.port if self._listener is not None else None

    async def on_start(self) -> None:
        """As `RecordSource`."""
        context = server_context(self.tls)
        self._closing, self._held_bytes, self._peers = False, 0, {}
        self._server = web.Server(
            self._answer,
            access_log=None,
            keepalive_timeout=self.idle_s,
            auto_decompress=False,
            max_headers=MAX_HEADERS,
            max_field_size=MAX_HEADER_BYTES,
        )
        listener = Listener(self.host, self.port, self.intake.receiver.name, self.intake.instance)
        await listener.start(self._server, context, self.max_connections, self.report_error)
        self._listener = listener
        self.spawn(self._sweep(self._server))

    async def on_stop(self) -> None:
        """As `RecordSource`. Requests that have begun are answered."""
        self._closing = True
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        if self._server is not None:
            until_s = time.monotonic() + self.linger_s
            while self._server.connections and time.monotonic() < until_s:  # noqa: ASYNC110 - nobody tells of the last one
                await asyncio.sleep(POLL_S)
            await self._server.shutdown(self.answer_s)

    # ---- connections

    async def _sweep(self, server: web.Server) -> None:
        """Close connections without a complete request for too long, such as one that sends its headers byte by byte.

        The server itself counts only from the answer of one request to the first byte of the next.
        """
        while True:
            now_s = time.monotonic()
            peers = self._peers
            self._peers = {handler: peers.get(handler) or _Peer(next(self._numbers), now_s) for handler in server.connections}
            for handler, peer in self._peers.items():
                if now_s - peer.idle_since_s > self.idle_s:
                    handler.force_close()
            await asyncio.sleep(min(SWEEP_S, self.idle_s / 2))

    # ---- requests

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        handler = request.protocol
        peer = self._peers.get(handler)
        if peer is None:
            peer = self._peers[handler] = _Peer(next(self._numbers), 0.0)
        peer.idle_since_s = math.inf
        try:
            response = self._refusal(request) or await self._take(request, peer.stream)
        except TidegateError as error:
            response = _nack(error)
        finally:
            peer.idle_since_s = time.monotonic()
        if self._closing or not request.content.is_eof():
            response.force_close()
        return response

    def _refusal(self, request: web.BaseRequest) -> web.Response | None:
        """What can be said before the body is read."""
        if self._authorization is not None:
            given = _hash(request.headers.get(hdrs.AUTHORIZATION, ""))
            if not hmac.compare_digest(given, self._authorization):
                return _response(401, "the token is missing or wrong", {hdrs.WWW_AUTHENTICATE: "Bearer"})
        if request.path != self.http.path:
            return _response(404, f"records are posted to {self.http.path}")
        if request.method != hdrs.METH_POST:
            return _response(405, "records are posted", {hdrs.ALLOW: hdrs.METH_POST})
        if request.content_type not in CONTENT_TYPES or hdrs.CONTENT_ENCODING in request.headers:
            kinds = f"the content type is one of {', '.join(CONTENT_TYPES)}, and a body is not compressed"
            return _response(415, kinds, {hdrs.ACCEPT_ENCODING: "identity"})
        if (request.content_length or 0) > self.http.max_body_bytes:
            return _response(413, f"a body has at most {self.http.max_body_bytes} bytes")
        return None

    async def _take(self, request: web.BaseRequest, stream: int) -> web.Response:
        if not await self.intake.admit(self.answer_s):  # before the body is read: the sender's own connection holds it back
            return _response(429, "the pipeline is behind", {hdrs.RETRY_AFTER: RETRY_AFTER_S})
        parts: list[bytes] = []
        try:
            await self._read(request, parts)
            records = records_of(b"".join(parts), request.content_type, self.intake.receiver.buffer_bytes // MEMORY_BYTES)
            wait_s = await self.intake.pace(len(records)) if records else 0.0
            if wait_s:
                return _response(
                    429, "the receiver's rate is used up, or the pipeline is behind", {hdrs.RETRY_AFTER: str(math.ceil(wait_s))}
                )
            ticket = self._offer(request, records, stream) if records else None
        except TimeoutError:
            return _response(408, f"the body did not come within {self.idle_s:g} s")
        except (ConnectionError, web.RequestPayloadError):  # nobody reads the answer
            return _response(400, "the body has not come as a whole")
        finally:
            self._held_bytes -= sum(map(len, parts))
            parts.clear()  # from here on the buffer counts what is held
        if ticket is not None:
            await self._acknowledged(ticket)
        return web.Response(status=202, body=b'{"records": %d}' % len(records), content_type="application/json")

    async def _read(self, request: web.BaseRequest, parts: list[bytes]) -> None:
        """The parts of a request's body. They count as held until its caller has stored it.

        Raises:
            RecordRefused: it is too large.
            Overloaded: all that are held are too large together.
            TimeoutError: it is late.
            ConnectionError, RequestPayloadError: it ends too early.
        """
        content = request.content
        if content.is_eof():  # most are small, and have come with their headers
            self._hold(content.read_nowait(), 0, parts)
            return
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.version == HttpVersion11:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        size = 0
        async with asyncio.timeout(self.idle_s):
            async for part in content.iter_any():
                size = self._hold(part, size, parts)

    def _hold(self, part: bytes, size: int, parts: list[bytes]) -> int:
        """Take in a part of a body behind `size` bytes of it; its size with the part."""
        parts.append(part)
        size += len(part)
        self._held_bytes += len(part)
        if size > self.http.max_body_bytes:
            raise RecordRefused(f"a body has at most {self.http.max_body_bytes} bytes", fix="Send several requests")
        if size < self._held_bytes > self.intake.receiver.buffer_bytes:
            raise Overloaded("too many bodies are held", fix="Send the request again a moment later")
        return size

    async def _acknowledged(self, ticket: Ticket) -> None:
        """Wait for a ticket. A timer of the loop, since a time-out for each request costs as much as reading it.

        Raises:
            NotDelivered: it has not come in time, or the broker has refused.
            RecordRefused: a record is larger than the topic allows.
        """
        timer = asyncio.get_running_loop().call_later(self.answer_s, ticket.cancel, _LATE)
        try:
            await ticket
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (_LATE,):
                raise
            raise NotDelivered(f"the broker has not acknowledged the records within {self.answer_s:g} s") from None
        finally:
            timer.cancel()

    def _offer(self, request: web.BaseRequest, records: list[bytes], stream: int) -> Ticket:
        key, name = request.headers.get(self.key_header), request.headers.get(self.http.idempotency_header)
        field = self.http.idempotency_field
        return self.intake.offer(
            records,
            key=None if key is None else _bytes(key),
            stream=stream,
            idempotency_key=name or None,  # an empty one would make all requests repeats of one
            record_keys=() if name or field is None else [field_key(record, field) for record in records],
        )


@dataclass(slots=True)
class _Peer:
    """A connection: its number, and since when (monotonic s) it has no request; infinite while it has one."""

    stream: int
    idle_since_s: float


def _nack(error: TidegateError) -> web.Response:
    if isinstance(error, RequestError):
        return _response(400, str(error))
    if isinstance(error, RecordRefused):
        return _response(413, str(error))
    # errors of Kafka name servers, which are not the sender's business
    why = str(error) if isinstance(error, Overloaded) else "the records are not acknowledged. Send the request again"
    return _response(503, why, {hdrs.RETRY_AFTER: RETRY_AFTER_S})


def _response(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=json.dumps({"error": message}), content_type="application/json", headers=headers)


def _hash(text: str) -> bytes:
    return hashlib.sha256(_bytes(text)).digest()


def _bytes(header: str) -> bytes:
    return header.encode(errors="surrogateescape")  # the bytes that were sent
