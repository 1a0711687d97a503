"""The server of `inspect --serve`: for this machine alone, whatever is asked."""

import http.client
import threading
from urllib.parse import quote

import pytest

from keras_transformer.commands.inspect_server import HEADERS, MOST_CHARACTERS, make_server
from keras_transformer.visualization import pages


@pytest.fixture
def ask():
    """ask(path, **headers): the status and the page; `Host` is the server's own by default."""

    def answer(text):
        if text == "blank":
            raise ValueError("The sentence <must> have words.")
        if text == "broken":
            raise RuntimeError("no memory")
        return pages.page(text, [pages.form(text)])

    with make_server(answer, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def call(path, method="GET", **headers):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=9)
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            headers = {"Host": f"127.0.0.1:{server.server_port}", **headers}
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            call.headers = dict(response.getheaders())
            return response.status, response.read().decode()

        call.port = server.server_port
        yield call
        server.shutdown()


@pytest.mark.parametrize(
    "text", ["a dog & a cat", "<script>x</script>", "猫は\u2028", "\udcff", ""]
)
def test_a_sentence_has_its_page_and_is_escaped_there(ask, text):
    status, page = ask(f"/?text={quote(text, errors='surrogateescape')}")
    assert status == 200 and "<script>x" not in page and "<input" in page
    assert HEADERS.items() <= ask.headers.items()


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "x:{port}"])
def test_another_name_is_refused(ask, host):
    status, page = ask("/?text=secret", Host=host.format(port=ask.port))
    assert status == 403 and "secret" not in page


def test_its_own_names_are_answered_and_other_sites_are_not(ask):
    assert ask("/", Host=f"localhost:{ask.port}")[0] == 200
    assert ask("/", Host="localhost:1")[0] == 403
    assert ask("/", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask("/", Sec_Fetch_Site="same-origin")[0] == 200


def test_what_goes_wrong_is_a_page_and_the_next_sentence_is_answered(ask):
    status, page = ask("/?text=blank")
    assert status == 400 and "The sentence &lt;must&gt; have words." in page
    assert ask("/?text=broken")[0] == 500
    assert ask(f"/?text={'a' * (MOST_CHARACTERS + 1)}")[0] == 400
    assert ask("/../etc/passwd")[0] == ask("/favicon.ico")[0] == 404
    assert ask("/", method="POST")[0] == 501
    assert ask("/?text=fine")[0] == 200


def test_a_port_that_is_taken_is_an_error(ask):
    with pytest.raises(ValueError, match=f"--port {ask.port} cannot be used .*; name another"):
        make_server(str, ask.port)
    with pytest.raises(ValueError, match="--port 99999 cannot be used"):
        make_server(str, 99999)
