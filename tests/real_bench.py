"""A bench as the engine makes it, for programs that are truly there: shadow, sandbox, HOME, proxy, scripted model.

    with real_bench(tmp_path, ScriptedModel(WriteFile("a.py", "…"), Say("Done.")), "openai", "scripted") as site:
        done = site.bench.run(program.headless(found, request, site.access, prompt(request)))
        assert site.changed() == {"a.py"}

The key that the model knows is the proxy's; the program has a throw-away one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast.agents.bench import SandboxBench
from holdfast.agents.protocol import ModelAccess
from holdfast.model.agent import Api
from holdfast.proxy.budget import Spending
from holdfast.proxy.server import ModelProxy
from holdfast.proxy.upstream import Secret, Upstream
from holdfast.sandbox.profile import Limits, Profile
from holdfast.testing.model_server import ScriptedModel
from holdfast.workspace.shadow import Shadow, open_shadow
from shaded import shaded

PROGRAMS = Path(__file__).parent.parent / ".agent-programs" / "bin"
PATH = f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin"
TOKEN = "throw-away-0123456789"
PORT = 8377
_MINUTES_MS = 180_000


class RealBench(NamedTuple):
    bench: SandboxBench
    proxy: ModelProxy
    model: ScriptedModel
    shadow: Shadow

    @property
    def access(self) -> ModelAccess:
        assert self.bench.model is not None
        return self.bench.model

    def changed(self) -> set[str]:
        """What the program left, as capture sees it."""
        return set(self.shadow.capture().change_set.paths)


@contextmanager
def real_bench(
    tmp_path: Path,
    model: ScriptedModel,
    api: Api,
    name: str,
    *,
    requests: int | None = None,
    provider_tools: bool = False,
) -> Iterator[RealBench]:
    """`name` is the model the program asks for; `requests` ends the run after so many."""
    with ExitStack() as stack:
        stack.enter_context(model)
        site = stack.enter_context(shaded(tmp_path / "workspace", {"README.md": b"A project.\n"}))
        shadow = stack.enter_context(open_shadow(site))
        # Not below tmp_path: the name of a unix socket is at most 107 bytes long.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        socket = os.path.join(folder, "model.sock")
        upstream = Upstream(model.url, (api,), Secret(model.key), ())
        proxy = stack.enter_context(
            ModelProxy(socket, upstream, TOKEN, Spending(requests=requests), provider_tools=provider_tools)
        )
        bench = SandboxBench(
            shadow.view,
            shadow.new_home(),
            Profile("proxy", proxy_socket=socket, forward_port=PORT, limits=Limits(time_ms=_MINUTES_MS)),
            model=ModelAccess(f"http://127.0.0.1:{PORT}", TOKEN, name),
            within_ms=_MINUTES_MS,
            watcher=lambda happening: None,
            spending=lambda: proxy.usage,
            stop=lambda: "budget" if proxy.exhausted else "",
        )
        yield RealBench(bench, proxy, model, shadow)
