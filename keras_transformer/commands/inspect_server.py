"""The pages of `inspect --serve`: for browsers of this machine alone, one sentence at a time."""

import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, urlsplit

from keras_transformer.checks import without_surrogates
from keras_transformer.commands.messages import log
from keras_transformer.visualization import pages

LOOPBACK = "127.0.0.1"
MOST_CHARACTERS, MOST_SECONDS = 5000, 30
# The page's own policy, and what only a header can say: nobody may put the page into theirs.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Content-Type": "text/html; charset=utf-8",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def serve(answer, port: int, sentence: str = "") -> None:
    """Serves pages until it is interrupted.

    Args:
        answer: function from a sentence, which may be "", to a page.
        port: on which it listens.
        sentence: the one of the address that is printed.

    Raises:
        ValueError: if the port is taken.
    """
    with make_server(answer, port) as server:
        query = f"?text={quote(sentence)}" if sentence else ""
        print(f"http://{LOOPBACK}:{server.server_port}/{query}", flush=True)
        log("open it in a browser on this machine; Ctrl+C ends it")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def make_server(answer, port: int) -> ThreadingHTTPServer:
    """Makes the server of `serve`; with port 0 it finds a free one."""
    # A browser opens connections in advance, for which a single thread would wait.
    lock = threading.Lock()

    class Handler(PageHandler):
        def page(self, text):
            with lock:  # one search at a time
                return answer(text)

    try:
        return ThreadingHTTPServer((LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"--port {port} cannot be used ({reason}); name another.") from error


class PageHandler(BaseHTTPRequestHandler):
    """Answers `GET /?text=...`, if it was sent to this machine by its own name."""

    timeout = MOST_SECONDS
    server_version, sys_version = "keras-transformer", ""

    def do_GET(self):
        if self._is_foreign():
            self._send(HTTPStatus.FORBIDDEN, "This page answers only at its own address.")
            return
        parts = urlsplit(self.path)
        if parts.path != "/":
            self._send(HTTPStatus.NOT_FOUND, "There is no such page; look at /.")
            return
        fields = parse_qs(parts.query, keep_blank_values=True)
        text = without_surrogates(fields.get("text", [""])[0].replace("\r\n", "\n").strip())
        if len(text) > MOST_CHARACTERS:
            fault = (
                f"A sentence has at most {MOST_CHARACTERS} characters, but this has {len(text)}."
            )
            self._send(HTTPStatus.BAD_REQUEST, fault)
            return
        try:
            self._send_page(HTTPStatus.OK, self.page(text))
        except ValueError as error:  # a blank sentence, a word that is not in it
            self._send(HTTPStatus.BAD_REQUEST, str(error), text)
        except Exception as error:
            log(f"note: a page failed: {error}")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, f"The page failed: {error}", text)

    def page(self, text: str) -> str:
        """Returns the page of a sentence."""
        raise NotImplementedError

    def _is_foreign(self) -> bool:
        """Returns whether another site's page or name is behind a request.

        A name of another site can be made to lead here ("DNS rebinding"): then its pages could
        read these. They cannot forge the header `Host`.
        """
        port = self.server.server_port
        own = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
        hosts = self.headers.get_all("Host") or []
        site = self.headers.get("Sec-Fetch-Site", "none")
        return len(hosts) != 1 or hosts[0].lower() not in own or site == "cross-site"

    def _send(self, status, fault, text=""):
        page = pages.page(status.phrase, [pages.form(text), pages.note(fault)])
        self._send_page(status, page)

    def _send_page(self, status, page):
        data = page.encode("utf-8", "replace")
        with suppress(ConnectionError):  # the browser has left
            self.send_response(status)
            for name, value in {**HEADERS, "Content-Length": len(data)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_):
        """Keeps quiet: the terminal is for what goes wrong."""
