"""The model proxy against a direct connection: goal < 5 ms added per request, and no delay in a stream.

    python benchmarks/proxy.py [--rounds 200]

A provider on loopback, in a process of its own, answers at once; a client asks it directly and through the proxy,
which runs in another process, on kept connections and taking turns. Both sides are plain HTTP, so what is measured is
the proxy: reading, judging, counting, recording.

`first piece` is the time until the beginning of a stream is with the client. Each piece says when it was sent, so that
the slowest one on the way is known; one is sent every two milliseconds, far faster than models speak.
In the burst all pieces come at once: that is what one costs.
A body of 300 kB is a long conversation. A request with a new connection each time shows what a handshake costs inside.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from _measure import Verdict, environment, milliseconds, turns

TOKEN = "throw-away-0123456789abcdef"
GOAL_MS = 5.0
EVENTS = 200
PACED = 25
PACE = 0.002
PATH = "/v1/chat/completions"

PROVIDER = f"""
import json, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USAGE = {{"prompt_tokens": 10, "completion_tokens": 5}}
WHOLE = json.dumps({{"choices": [{{"message": {{"content": "hello"}}}}], "usage": USAGE}}).encode()
EVENTS = [b'data: ' + json.dumps({{"choices": [{{"delta": {{"content": "word "}}}}]}}).encode() + b"\\n\\n"] * {EVENTS}
EVENTS.append(b'data: ' + json.dumps({{"choices": [], "usage": USAGE}}).encode() + b"\\n\\n")


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        if b'"stream":true' in body or b'"stream": true' in body:
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in EVENTS[-{PACED}:] if b"paced" in body else EVENTS:
                if b"paced" in body:
                    time.sleep({PACE})
                    event = event.replace(b"data: {{", b'data: {{"sent": %.6f, ' % time.monotonic())
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
            self.wfile.write(b"0\\r\\n\\r\\n")
        else:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(WHOLE)))
            self.end_headers()
            self.wfile.write(WHOLE)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
"""

PROXY = f"""
import sys
from holdfast.proxy.server import ModelProxy
from holdfast.proxy.budget import Spending
from holdfast.proxy.upstream import Price, Secret, Upstream
from holdfast.store.transcripts import Lines

path, port = sys.argv[1:]
upstream = Upstream(f"http://127.0.0.1:{{port}}", ("openai",), Secret("k" * 40), (Price("", 1, 1),))
with Lines(path + ".jsonl", limit=1 << 30) as lines:
    with ModelProxy(path, upstream, "{TOKEN}", Spending(micro_usd=10**15), transcript=lines.write) as proxy:
        print("ready", flush=True)
        sys.stdin.read()
"""


class Inside(http.client.HTTPConnection):
    """HTTP over the proxy's socket, where `path` is one."""

    def __init__(self, port: int, path: str = "") -> None:
        super().__init__("127.0.0.1", port)
        self._path = path

    def connect(self) -> None:
        if not self._path:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def asked(connection: Inside, body: bytes) -> tuple[float, float]:
    """Seconds to the first piece and to the end."""
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    start = time.perf_counter()
    connection.request("POST", PATH, body, headers)
    response = connection.getresponse()
    response.read1(10)
    first = time.perf_counter() - start
    response.read()
    assert response.status == 200
    return first, time.perf_counter() - start


def slowest(connection: Inside, body: bytes) -> float:
    """Seconds that the slowest piece of a stream was on its way, its end included; both clocks are the machine's."""
    connection.request("POST", PATH, body, {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"})
    response = connection.getresponse()
    longest = last = 0.0
    while piece := response.read1(1 << 16):
        now = time.monotonic()
        for sent in re.findall(rb'"sent": ([0-9.]+)', piece):
            last = float(sent)
            longest = max(longest, now - last)
    return max(longest, time.monotonic() - last)


def contestants(port: int, path: str) -> dict[str, Callable[[], float]]:
    question = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    long = {**question, "messages": [{"role": "user", "content": "a line of words\n" * 40}] * 450}
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    bodies = {
        "small": json.dumps(question).encode(),
        "300 kB": json.dumps(long).encode(),
        "stream": json.dumps({**question, **streaming, "user": "paced"}).encode(),
        "burst": json.dumps({**question, **streaming}).encode(),
    }
    found: dict[str, Callable[[], float]] = {}
    for who, kept in {"direct": Inside(port), "proxy": Inside(port, path)}.items():
        for what, body in [(what, body) for what, body in bodies.items() if what != "stream"]:
            found[f"{who} {what}, whole"] = lambda kept=kept, body=body: asked(kept, body)[1]  # type: ignore[misc]
        stream = bodies["stream"]
        found[f"{who} stream, first piece"] = lambda kept=kept, body=stream: asked(kept, body)[0]  # type: ignore[misc]
        found[f"{who} stream, slowest piece"] = lambda kept=kept, body=stream: slowest(kept, body)  # type: ignore[misc]
        place = path if who == "proxy" else ""
        found[f"{who} small, new connection"] = lambda place=place, body=bodies["small"]: anew(port, place, body)  # type: ignore[misc]
    return found


def anew(port: int, path: str, body: bytes) -> float:
    connection = Inside(port, path)
    try:
        return asked(connection, body)[1]
    finally:
        connection.close()


def main() -> None:
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--rounds", type=int, default=200)
    rounds = asking.parse_args().rounds
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment(), "text": True}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        provider = subprocess.Popen([sys.executable, "-c", PROVIDER], **pipes)  # type: ignore[call-overload]
        port = provider.stdout.readline().strip()
        path = os.path.join(folder, "s")
        proxy = subprocess.Popen([sys.executable, "-c", PROXY, path, port], **pipes)  # type: ignore[call-overload]
        try:
            assert proxy.stdout.readline() == "ready\n"
            medians = turns(rounds, contestants(int(port), path))
        finally:
            proxy.communicate()
            provider.kill()
            provider.communicate()
    tell(medians)


def tell(medians: dict[str, float]) -> None:
    names = [name.removeprefix("direct ") for name in medians if name.startswith("direct ")]
    for name in [name for name in names if not name.startswith("burst")]:
        direct, through = medians[f"direct {name}"], medians[f"proxy {name}"]
        about = f"{name}: {milliseconds(direct)} → {milliseconds(through)} ms, {through / direct:.1f} ×"
        print(Verdict(about, (through - direct) * 1e3, GOAL_MS, "ms added").line())
    events = (medians["proxy burst, whole"] - medians["direct burst, whole"]) / (EVENTS + 1)
    print(Verdict(f"a piece, of {EVENTS} that come at once", events * 1e6, 200, "µs added").line())


if __name__ == "__main__":
    main()
