"""The README's code runs and prints what the README says, on the real small model."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest

from attr_core import cli
from attr_core.protocols import Engine, Sampling
from attr_core.types import Message, Prompt

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[+\-−]?\d+(?:[.,]\d+)*")
VARIES = re.compile(
    r"tr_[0-9a-f]{16}|\d{4}-\d\d-\d\d \d\d:\d\d|[\d.]+ s\b|[\d.e-]+ nats|[\d,]+ (?:tokens|model calls|from the cache)"
)

pytestmark = pytest.mark.model


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(README) if found == language]


def alike(printed: str, expected: str) -> bool:
    """Whether two outputs are the same but for ids, times and the last digits of measurements."""
    texts = [re.sub(r"\s+", " ", VARIES.sub("…", text)).strip() for text in (printed, expected)]
    words = [NUMBER.split(text) for text in texts]
    numbers = [[float(number.replace(",", "").replace("−", "-")) for number in NUMBER.findall(text)] for text in texts]
    return words[0] == words[1] and numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=0.06)


def run(code: str) -> str:
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    return printed.getvalue()


@contextlib.contextmanager
def served(engine: Engine) -> Iterator[str]:
    """The real small model behind the chat-completions protocol, on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = Prompt(tuple(Message.parse(message) for message in body["messages"]))
            text = engine.generate([prompt], Sampling(max_tokens=32))[0].text
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "smollm2", "choices": [choice]}
            payload = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_demo_prints_what_the_readme_shows(small_engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    [expected] = blocks("console")
    assert cli._run(["demo"]) == 0
    printed = capsys.readouterr().out
    assert alike("$ attrkit demo\n" + printed, expected), printed


def test_the_quickstart_prints_what_the_readme_shows(small_engine: Engine) -> None:
    printed = run(blocks("python")[0])
    assert alike(printed, blocks("text")[0]), printed


def test_the_quickstart_is_the_example_file() -> None:
    example = (ROOT / "examples" / "core_quickstart.py").read_text(encoding="utf-8")
    assert example.split('"""\n\n', 1)[1] == blocks("python")[0]


def test_a_wrong_answer_is_diagnosed_as_the_readme_shows(small_engine: Engine) -> None:
    printed = run(blocks("python")[5])
    assert alike(printed, blocks("text")[4]), printed
    example = (ROOT / "examples" / "diagnose_answer.py").read_text(encoding="utf-8")
    assert example.split('"""\n\n', 1)[1] == blocks("python")[5]


def test_a_logged_call_can_be_inspected(small_engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("litellm")
    with served(small_engine) as url, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # litellm's own
        trace_id = run(blocks("python")[1].replace("http://127.0.0.1:8012/v1", url)).strip()
    assert cli._run(["inspect", trace_id]) == 0
    printed = capsys.readouterr().out
    assert "lantern" in printed
    assert "cost: " in printed


@pytest.mark.parametrize(
    ("number", "framework"),
    [(1, "langchain_core"), (2, "llama_index.core"), (3, "haystack")],
    ids=lambda name: str(name),
)
def test_an_application_with_an_adapter_prints_what_the_readme_shows(
    small_engine: Engine, monkeypatch: pytest.MonkeyPatch, number: int, framework: str
) -> None:
    pytest.importorskip(framework)
    monkeypatch.syspath_prepend(ROOT / "examples")
    printed = run(blocks("python")[number + 1])
    assert alike(printed, blocks("text")[number]), printed


def test_a_file_of_messages_can_be_inspected(
    small_engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = "Context:\nThe Aldemoor Lantern Festival opened in 1911.\n\nQuestion: When did the festival open?"
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "It opened in 1911."}]
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(messages))
    [command] = re.findall(r"^attrkit (inspect --file .*)$", README, re.MULTILINE)
    arguments = [part.strip('"') for part in command.replace("messages.json", str(file)).split()]
    assert cli._run(arguments) == 0
    assert "span “1911”" in capsys.readouterr().out
