"""`rest_client.py` against a server that means no good: one line, in time, in little memory."""

import io
import json
import os
import pty
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "examples" / "serving" / "rest_client.py"


def rows(*results):
    return json.dumps({"predictions": [{"translation": t, "score": s} for t, s in results]})


def http(body, status="200 OK", length=None, headers=()):
    body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    length = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {length}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def read_request(connection):
    """Reads all of a request; what is left unread would reset the connection."""
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"]}"):
        data += connection.recv(1 << 16) or b"\r\n\r\n]}"


@contextmanager
def server(*parts, drip=None):
    """Sends `parts` to each client, then `drip` again and again; yields the address."""
    stop, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def serve():
        while not stop.is_set():
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(5)
                try:
                    read_request(connection)
                    for part in parts:
                        connection.sendall(part)
                    while drip and not stop.wait(0 if len(drip) > 1 else 0.02):
                        connection.sendall(drip)
                except OSError:
                    pass  # the client has gone

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop.set()
    socket.create_connection(listener.getsockname()).close()
    thread.join(5)
    listener.close()


@pytest.fixture(scope="module")
def client():
    import importlib.util

    spec = importlib.util.spec_from_file_location("hostile_rest_client", CLIENT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fails(client, monkeypatch, capsysbinary):
    """fails(*parts, drip=...): the one line of a run that prints nothing else."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def run(*parts, drip=None, timeout="5"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
        with server(*parts, drip=drip) as url:
            assert client.main(["--url", url, "--timeout", timeout]) == 1
        output, error = capsysbinary.readouterr()
        assert output == b""
        line = error.decode()
        assert line.startswith("rest_client: ") and line.endswith("\n")
        assert sum(map(line.count, "\n\r\x1b\x9b\x07")) == 1
        assert len(line) < 600
        return line

    return run


STRANGE = [
    *("null", "0", "-1e999", "NaN", '"text"', "[]", "[[]]", "{}", "true", "", " ", "{", '{"'),
    *(json.dumps({"predictions": x}) for x in (None, 1, "ab", {"a": 1}, [None], [1], ["a"], [[]])),
    *(rows((x, -1.0)) for x in (None, 1, 1.5, True, [], {}, ["a"])),
    *(rows(("a", x)) for x in (None, "1", True, [], {}, [1.0], 10**400)),
    *(f'{{"predictions": [{{"translation": "a", "score": {x}}}]}}' for x in ("NaN", "-Infinity")),
    '{"predictions": [{"translation": "\\ud800", "score": -1}]}',
    '{"predictions": [{"translation": "a\\udfff", "score": -1}]}',
    '{"predictions": [{"translation": "a"}]}',
    '{"predictions": [{"translation": "a", "score": ' + "1" * 5000 + "}]}",
    "[" * 100_000,
    '{"predictions":' * 50_000,
    "\ud800",
    b"\xff\xfe\x00",
    b"\x00" * 1000,
    b"\x1f\x8b\x08\x00",
]


@pytest.mark.parametrize("body", STRANGE, ids=range(len(STRANGE)))
def test_what_is_no_list_of_translations_is_one_line(fails, body):
    assert "gave no translations and scores" in fails(http(body))


@pytest.mark.parametrize("status", ["400 Bad", "404 \x1b[31mred\x07", "500 ", "302 Found", "700 x"])
@pytest.mark.parametrize(
    "body", ["null", '{"error": null}', '{"error": {"a": 1}}', "[" * 100_000, ""]
)
def test_errors_of_any_form_are_one_line(fails, status, body):
    assert f"answered {status[:3]}" in fails(http(body, status))


def test_a_message_is_one_short_line_without_controls(fails):
    line = fails(http(json.dumps({"error": "\x1b]0;title\x07 a\nb\r\x9b2J" + "c" * 9999}), "400 x"))
    assert r"\x1b]0;title\x07 a b \x9b2Jccc" in line


def test_another_address_is_not_asked(fails):
    with server(http(rows(("A", -1.0)))) as other:
        for status in ("301 x", "302 x", "303 x", "307 x", "308 x"):
            line = fails(http("", status, headers=[f"Location: {other}/"]))
            assert f"answered {status[:3]}" in line


BROKEN = {
    "nothing": [],
    "no http": [b"SSH-2.0-OpenSSH\r\n"],
    "half a header": [b"HTTP/1.1 200 OK\r\nContent-"],
    "a long header": [b"HTTP/1.1 200 OK\r\nA: " + b"a" * 100_000],
    "many headers": [b"HTTP/1.1 200 OK\r\n" + b"A: a\r\n" * 1000],
    "too short": [http(rows(("A", -1.0)), length=1)],
    "too long": [http(rows(("A", -1.0)), length=9999)],
    "far too long": [http(rows(("A", -1.0)), length=10**18)],
    "no length": [http(rows(("A", -1.0))[:-1], length=-5)],
    "bad chunks": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"],
    "half a chunk": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFF\r\n{}"],
    "error too long": [http("{}", "500 x", length=9999)],
}


@pytest.mark.parametrize("parts", BROKEN.values(), ids=BROKEN)
def test_broken_answers_are_one_line(fails, parts):
    fails(*parts)


HEAD = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "status": ([], b"H"),
    "header": ([HEAD + b"A: "], b"a"),
    "body": ([HEAD + b"\r\n"], b" "),
    "error": ([b"HTTP/1.1 500 x\r\n\r\n"], b" "),
    "chunks": ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;"], b"a"),
    "continue": ([], b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize(("parts", "drip"), DRIPS.values(), ids=DRIPS)
def test_the_timeout_is_of_the_whole_request(fails, parts, drip):
    start = time.monotonic()
    line = fails(*parts, drip=drip, timeout="0.3")
    # Of an error whose explanation comes too late, the status is known.
    assert "timed out" in line or "answered 500: x" in line
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("status", ["200 OK", "500 x"])
def test_an_endless_body_is_cut_off(fails, status):
    head = f"HTTP/1.1 {status}\r\n\r\n".encode()
    line = fails(head, drip=b"[" * (1 << 16))
    assert "over 4194304 bytes" in line or "answered 500: x" in line


@pytest.mark.parametrize("word", ["0", "-1", "nan", "inf", "1e300", "soon"])
def test_a_timeout_is_seconds(client, word, capsys):
    with pytest.raises(SystemExit) as ended:
        client.main(["--timeout", word])
    assert ended.value.code == 2
    assert "argument --timeout: " in capsys.readouterr().err


def test_memory_is_bounded():
    """The worst body that is parsed: millions of lists."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    for body in ("[" + "[]," * (1 << 20), "[[]]" * (1 << 21)):
        with server(http(body)) as url:
            result = subprocess.run(
                [sys.executable, CLIENT, "--url", url],
                input=b"a\n",
                capture_output=True,
                env=os.environ | {"no_proxy": "127.0.0.1"},
                preexec_fn=limit,
            )
        assert result.returncode == 1
        assert result.stderr.startswith(b"rest_client: ") and result.stderr.count(b"\n") == 1


CONTROLS = "a\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x08b\tc\u202fd"


def test_control_sequences_reach_a_pipe_and_no_terminal():
    command = [sys.executable, CLIENT]
    environment = os.environ | {"no_proxy": "127.0.0.1"}
    with server(http(rows((CONTROLS, -1.0)))) as url:
        command += ["--url", url]
        piped = subprocess.run(command, input=b"a\n", capture_output=True, env=environment)
        ours, theirs = pty.openpty()
        subprocess.run(command, input=b"a\n", stdout=theirs, env=environment)
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 1 << 16):
                shown += data
        except OSError:
            pass  # Linux's way to say that a terminal has ended
        os.close(ours)
    assert piped.stdout.decode() == CONTROLS + "\n"
    text = shown.decode().rstrip("\r\n")
    assert text == r"a\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x08b" + "\tc\u202fd"
    assert not set(text) & set("\x1b\x07\x9b\x7f\x08")
