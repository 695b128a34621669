"""The texts of the demo: a little site, its service, and three changes to it."""

from __future__ import annotations

FILES = {
    "conf/site.conf": "title = release 1\nworkers = 2\n\n# people\nhelp = desk\n",
    "conf/old.conf": "left over from release 0\n",
    "releases/1/index.html": "<h1>Release 1</h1>\n",
}
EDIT = "admin = me\n"

SERVICE = """\
import http.server, sys

class Service(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            lines = open(sys.argv[1]).read().splitlines()
            settings = dict(line.split(" = ") for line in lines if " = " in line)
            status, text = 200, f"{settings['title']}, {int(settings['workers'])} workers"
        except (OSError, ValueError, KeyError) as error:
            status, text = 500, f"cannot start: {error}"
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode() + b"\\n")
        self.server.is_over = self.path == "/quit"

    def log_message(self, *words):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Service)
server.is_over = False
print("ready", server.server_port, flush=True)
while not server.is_over:
    server.handle_request()
"""

RELEASE_2 = """\
intent: Switch to release 2
steps:
  - update: conf/site.conf
    old: "title = release 1\\nworkers = 2\\n\\n# people\\nhelp = desk\\n"
    content: "title = release 2\\nworkers = 4\\n\\n# people\\nhelp = desk\\n"
  - write: releases/2/index.html
    content: "<h1>Release 2</h1>\\n"
  - symlink: {path: current, to: releases/2}
  - delete: conf/old.conf
verify:
  - run: [grep, -q, "workers = [0-9]", conf/site.conf]
health:
  - http: http://127.0.0.1:PORT/health
    contains: release 2
    within: 5s
"""

TOO_MANY = """\
intent: Use as many workers as there are
steps:
  - write: conf/site.conf
    content: "title = release 2\\nworkers = many\\n"
  - delete: releases/1
    recursive: true
health:
  - http: http://127.0.0.1:PORT/health
    within: 1s
"""

RELEASE_3 = """\
intent: Switch to release 3
steps:
  - write: conf/site.conf
    content: "title = release 3\\nworkers = 8\\n"
  - write: releases/3/index.html
    content: "<h1>Release 3</h1>\\n"
  - delete: releases/1
    recursive: true
"""

RELEASE_4 = """\
intent: Build release 4
steps:
  - run: [sh, -c, "mkdir -p releases/4 && echo '<h1>Release 4</h1>' > releases/4/index.html"]
verify:
  - run: [grep, -q, "Release 4", releases/4/index.html]
"""

DEPLOYMENT = """\
intent: Deploy by itself after every push
steps:
  - write: .github/workflows/deploy.yml
    content: "on: push\\njobs: {}\\n"
"""

# Three people: the author has no voice, two others must agree.
PEOPLE = """\
[me]
name = "NAME"
[approvers]
ann = "ANN"
ben = "BEN"
"""

# The same as `holdfast apply`, with a crash point armed: after the last file moved, before the change is committed.
KILLED = """\
import sys, holdfast
from holdfast.testing import FaultyCalls, KillAt
hf = holdfast.open(calls=FaultyCalls(KillAt("flipped")))
hf.execute(hf.simulate(hf.plan(sys.argv[1])), approved_by="demo")
"""

ROADMAP = """\
# Greetings

## Phase 1: Say hello

- [ ] Create greeting.py with a function that greets somebody by name
- [ ] Create farewell.py that says goodbye (depends on Create greeting.py with a function that greets somebody by name)
"""

PROJECT = {
    "ROADMAP.md": ROADMAP,
    "Makefile": "test:\n\tpython3 -m unittest -q\n",
    "test_greeting.py": """\
import unittest
class Greeting(unittest.TestCase):
    def test_it_greets(self):
        import os
        if os.path.exists("greeting.py"):
            from greeting import greet
            self.assertEqual(greet("Ada"), "Hello, Ada!")
""",
    ".gitignore": "__pycache__/\n",
}

# A stand-in for a coding agent, with a mistake in it: it greets wrongly until it is shown the test that fails.
HELPER = """\
import sys
task = open(sys.argv[1], encoding="utf-8").read()
if "farewell.py" in task.splitlines()[0] or "Create farewell.py" in task[:400]:
    open("farewell.py", "w").write("def part(name):\\n    return f'Goodbye, {name}!'\\n")
else:
    word = "Hello" if "A check failed" in task else "Hullo"
    open("greeting.py", "w").write(f"def greet(name):\\n    return f'{word}, {{name}}!'\\n")
print("Done! All tests pass.")
"""

AGENTS = """\
[agents.helper]
command = ["PYTHON", "HELPER", "{task_file}"]
network = "none"
"""
