"""The clients of examples/serving against servers that speak TensorFlow Serving's protocols.

Both are held to the same promises first, then each to what only its protocol has.
"""

import importlib.util
import io
import json
import os
import runpy
import socket
import sys
import threading
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parents[2] / "examples" / "serving"
MODEL, SLOW, STRANGE, SHORT = "en-de", "slow", "strange", "short"
NO_API = "needs tensorflow-serving-api, which only this example uses"


def fake_translation(text):
    """What both servers answer: upper case, and a line break for a bar."""
    return text.upper().replace("|", "\r\n")


class Server:
    """A port, the lists of texts that came in, and `release`, which lets the slow model answer."""

    def __init__(self):
        self.port, self.requests, self.release = 0, [], threading.Event()


@contextmanager
def rest_server():
    """`/v1/models/NAME:predict` in row format, with the errors of TensorFlow Serving."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.body, server.path, server.type = body, self.path, self.headers["Content-Type"]
            texts = body["instances"]
            rows = [
                {"score": -len(text) / 3, "translation": fake_translation(text)} for text in texts
            ]
            server.requests.append(texts)
            name = self.path.removeprefix("/v1/models/").removesuffix(":predict")
            if name == SLOW:
                server.release.wait(10)
                return  # nobody waits for it any more
            if name == STRANGE:
                rows = [row["translation"] for row in rows]
            elif name == SHORT:
                rows.pop()
            elif name == "proxy":
                return self.answer(502, b"<html>no backend</html>")
            elif name == "page":
                return self.answer(200, b"<html>\nwelcome</html>")
            elif name != MODEL:
                return self.error(404, f"Servable not found for request: Latest({name})")
            self.answer(200, json.dumps({"predictions": rows}, indent=4).encode())

        def error(self, status, message):
            self.answer(status, json.dumps({"error": message}).encode())

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        server.port = http_server.server_port
        thread = threading.Thread(target=http_server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.release.set()
        http_server.shutdown()
        thread.join()


@contextmanager
def grpc_server(directories):
    """The real PredictionService over SavedModels, with the errors of TensorFlow Serving."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis.predict_pb2 import PredictResponse
    from tensorflow_serving.apis.prediction_service_pb2_grpc import (
        PredictionServiceServicer,
        add_PredictionServiceServicer_to_server,
    )

    server = Server()
    models = {name: tf.saved_model.load(str(path)) for name, path in directories.items()}

    class Servicer(PredictionServiceServicer):
        def Predict(self, request, context):
            name = request.model_spec.name
            if name not in models:
                message = f"Servable not found for request: Latest({name})"
                context.abort(grpc.StatusCode.NOT_FOUND, message)
            signature = models[name].signatures[request.model_spec.signature_name]
            inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
            server.requests.append([text.decode() for text in inputs["text"]])
            if name == SLOW:
                server.release.wait(10)
            outputs = signature(**{key: tf.constant(value) for key, value in inputs.items()})
            response = PredictResponse()
            for key, value in outputs.items():
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
            return response

    grpc_server = grpc.server(futures.ThreadPoolExecutor(2))
    add_PredictionServiceServicer_to_server(Servicer(), grpc_server)
    server.port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    yield server
    server.release.set()
    grpc_server.stop(None).wait()


@pytest.fixture(scope="module")
def saved_models(tmp_path_factory):
    """SavedModels with the signature of an export, or nearly: their directories by model name."""
    pytest.importorskip("tensorflow_serving", reason=NO_API)
    import tensorflow as tf

    def save(name, function):
        module, path = tf.Module(), tmp_path_factory.mktemp(name) / "1"
        spec = tf.TensorSpec([None], tf.string, name="text")
        module.serving_default = tf.function(function, input_signature=[spec])
        tf.saved_model.save(module, str(path), {"serving_default": module.serving_default})
        return path

    def translate(text):
        upper = tf.strings.regex_replace(tf.strings.upper(text, "utf-8"), r"\|", "\r\n")
        lengths = tf.strings.length(text, "UTF8_CHAR")
        return {"translation": upper, "score": -tf.cast(lengths, tf.float32) / 3}

    model = save(MODEL, translate)
    strange = save(STRANGE, lambda text: {"output_0": tf.strings.upper(text)})
    short = save(SHORT, lambda text: {key: x[1:] for key, x in translate(text).items()})
    return {MODEL: model, SLOW: model, STRANGE: strange, SHORT: short}


def load(name):
    """A client as a module: examples/ is no package."""
    spec = importlib.util.spec_from_file_location(name, CLIENTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Client:
    """A client and its server."""

    def __init__(self, name, server, set_input, captured):
        self.name, self.server, self.module = name, server, load(name)
        self.set_input, self.captured = set_input, captured

    def address(self, port=None):
        port = port or self.server.port
        if self.name == "rest_client":
            return ["--url", f"http://127.0.0.1:{port}"]
        return ["--host", f"127.0.0.1:{port}"]

    def run(self, data, *arguments, port=None):
        """The exit code, standard output and standard error."""
        self.set_input(data)
        code = self.module.main([*self.address(port), *arguments])
        return code, *self.captured.readouterr()

    def error(self, data, *arguments, port=None):
        """The one line of a run that fails before it prints anything."""
        code, output, error = self.run(data, *arguments, port=port)
        assert code == 1
        assert output == b""
        message = error.decode()
        assert message.startswith(f"{self.name}: ")
        assert message.endswith("\n") and message.count("\n") == 1
        return message


@pytest.fixture
def set_input(monkeypatch):
    # A proxy of the machine must not come between.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture
def rest_client(set_input, capsysbinary):
    with rest_server() as server:
        yield Client("rest_client", server, set_input, capsysbinary)


@pytest.fixture
def grpc_client(saved_models, set_input, capsysbinary):
    with grpc_server(saved_models) as server:
        yield Client("grpc_client", server, set_input, capsysbinary)


@pytest.fixture(params=["rest_client", "grpc_client"])
def client(request):
    return request.getfixturevalue(request.param)


# What both promise


def test_each_line_is_translated(client):
    code, output, error = client.run("a dog runs\nüber\n".encode())
    assert (code, output.decode(), error) == (0, "A DOG RUNS\nÜBER\n", b"")


def test_scores_come_before_the_translation(client):
    assert client.run(b"abc\na\tb\n", "--scores")[1] == b"-1.0000\tABC\n-1.0000\tA\tB\n"


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"a\n\n  \nb", ["a", "", "  ", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        ("a\u2028b\u0085c\x0bd\n".encode(), ["a\u2028b\u0085c\x0bd"]),
        (b"gr\xfcn\n\xff\xfe\n", ["gr\ufffdn", "\ufffd\ufffd"]),
        (b"\n", [""]),
        ('"\\ \U0001f600 \x07\n'.encode(), ['"\\ \U0001f600 \x07']),
    ],
    ids=["blank", "windows", "unicode separators", "no UTF-8", "one blank", "escapes"],
)
def test_lines_are_sent_as_they_are(client, data, texts):
    code, output, _ = client.run(data)
    assert code == 0
    assert client.server.requests == [texts]
    assert output.decode() == "".join(f"{text.upper()}\n" for text in texts)


def test_a_line_break_in_a_translation_does_not_shift_lines(client):
    assert client.run(b"a|b\nc\n")[1] == b"A  B\nC\n"


@pytest.mark.parametrize("count", [31, 32, 33, 64, 70])
def test_requests_hold_at_most_32_sentences_in_order(client, count):
    texts = [f"sentence {i}" for i in range(count)]
    code, output, _ = client.run("\n".join(texts).encode())
    assert code == 0
    assert output.decode().splitlines() == [text.upper() for text in texts]
    assert sum(client.server.requests, []) == texts
    assert [len(sent) for sent in client.server.requests[:-1]] == [32] * ((count - 1) // 32)
    assert 1 <= len(client.server.requests[-1]) <= 32


def test_nothing_is_sent_for_no_input(client):
    assert client.run(b"") == (0, b"", b"")
    assert client.server.requests == []


def test_server_down(client):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening, so nobody else can answer there
        port = closed.getsockname()[1]
        message = client.error(b"a\n", port=port)
    assert f"127.0.0.1:{port}" in message
    assert "refused" in message


def test_unknown_model(client):
    message = client.error(b"a\n", "--model", "fr-de")
    assert "Servable not found for request: Latest(fr-de)" in message


def test_a_server_that_does_not_answer_in_time(client):
    option = "--timeout" if client.name == "rest_client" else "--deadline"
    message = client.error(b"a\n", "--model", SLOW, option, "0.2")
    assert "timed out" in message or "DEADLINE_EXCEEDED" in message


def test_a_model_with_other_outputs(client):
    message = client.error(b"a\n", "--model", STRANGE)
    assert "no translations and scores" in message or "no output score and translation" in message


def test_an_answer_that_is_too_short(client):
    assert "gave 1 translations for 2 sentences" in client.error(b"a\nb\n", "--model", SHORT)


def test_translations_before_an_error_are_kept(client, monkeypatch):
    translate, calls = client.module.translate, []

    def fail_later(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise client.module.ServerError("gone")
        return translate(*arguments)

    monkeypatch.setattr(client.module, "translate", fail_later)
    code, output, error = client.run(b"a\n" * 40)
    assert (code, output) == (1, b"A\n" * 32)
    assert error.decode().endswith("gone\n")


def test_a_reader_that_has_gone(client, monkeypatch):
    read_end, write_end = os.pipe()
    os.close(read_end)
    client.set_input(b"a\n")
    with open(write_end, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert client.module.main(client.address()) == 1


def test_run_as_a_script(client, monkeypatch):
    client.set_input(b"a\n")
    monkeypatch.setattr(sys, "argv", [client.name, *client.address(), "--model", MODEL])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(CLIENTS / f"{client.name}.py"), run_name="__main__")
    assert ended.value.code == 0
    assert client.captured.readouterr().out == b"A\n"


# REST


def test_rest_path_and_body(rest_client):
    rest_client.run(b"a\nb\n")
    assert rest_client.server.path == "/v1/models/en-de:predict"
    assert rest_client.server.type == "application/json"
    assert rest_client.server.body == {"instances": ["a", "b"]}


def test_rest_url_may_end_in_a_slash(rest_client):
    rest_client.run(b"a\n", "--url", f"http://127.0.0.1:{rest_client.server.port}/")
    assert rest_client.server.path == "/v1/models/en-de:predict"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("fr-de", "answered 404: Servable not found for request: Latest(fr-de)"),
        ("proxy", "answered 502: Bad Gateway"),
        ("page", "gave no translations and scores: b'<html>"),
    ],
)
def test_rest_error_answers(rest_client, model, expected):
    assert expected in rest_client.error(b"a\n", "--model", model)


def test_rest_url_without_scheme(rest_client):
    assert "unknown url type" in rest_client.error(b"a\n", "--url", "localhost:8501")


# gRPC


def test_grpc_errors_name_their_code(grpc_client):
    message = grpc_client.error(b"a\n", "--model", "fr-de")
    assert f"127.0.0.1:{grpc_client.server.port}: NOT_FOUND: Servable not found" in message


@pytest.mark.slow
def test_grpc_with_an_exported_translator(
    grpc_client, tokenizer, set_input, capsysbinary, tmp_path
):
    from keras_transformer import Transformer, Translator

    model = Transformer(
        num_layers=1, d_model=8, num_heads=2, d_ff=8, source_vocab_size=tokenizer.vocab_size
    )
    translator = Translator(model, tokenizer, "greedy", max_length=12)
    texts = ["a dog runs", "", "zwei große Katzen"]
    expected = translator.translate(texts)
    with grpc_server({MODEL: translator.export(tmp_path / MODEL, signatures=())}) as server:
        client = Client("grpc_client", server, set_input, capsysbinary)
        code, output, _ = client.run("\n".join(texts).encode(), "--scores")
    assert code == 0
    lines = [line.split("\t", 1) for line in output.decode().removesuffix("\n").split("\n")]
    assert [text for _, text in lines] == [client.module.one_line(t) for t in expected.texts]
    assert [float(score) for score, _ in lines] == pytest.approx(expected.scores, abs=1e-3)
