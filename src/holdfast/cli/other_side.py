"""The other side of `holdfast -C ssh://…`: says which protocol it speaks, and takes a change file into its store.

    holdfast over-ssh PROTOCOL PATH parcel|nothing  < parcel

The answer is one line of JSON. The parcel becomes a blob of the workspace, private to its user, and gc forgets it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from holdfast import __version__
from holdfast.cli.screen import SCHEMA
from holdfast.errors import HoldfastError, InvalidInput


def answer(words: Sequence[str], protocol: int) -> int:
    """Greet; the exit status is returned."""
    said: dict[str, object] = {"schema": SCHEMA, "kind": "other-side", "id": __version__, "protocol": protocol}
    status = 0
    try:
        if len(words) != 3 or words[2] not in ("parcel", "nothing"):
            raise InvalidInput("this is for holdfast -C ssh://…, not for people")
        # Another protocol may mean something else by the rest, so only ours is listened to.
        if words[0] == str(protocol) and words[2] == "parcel":
            said["parcel"] = _kept(words[1])
    except HoldfastError as error:
        said["error"] = {"code": error.code, "message": error.message, "hint": error.hint, "changed": False}
        status = error.exit_status
    print(json.dumps(said), flush=True)
    return status


def _kept(directory: str) -> str:
    """Store what comes on standard input in the workspace at `directory`; the path of the blob."""
    from holdfast.intake.changefile import MAX_BYTES  # most greetings bring no parcel, and need none of this
    from holdfast.store.blobs import OBJECTS, Blobs
    from holdfast.wiring import open as open_workspace

    if not os.path.isdir(directory):
        raise InvalidInput(f"{directory}: there is no such directory over there")
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    with open_workspace(directory) as hf:
        digest = Blobs(hf.site.state).put(data)
        return os.path.join(hf.site.state.path, OBJECTS, digest[:2], digest[2:])
