"""One connection to a port, closed at once: it says that somebody listens there, and nothing about who."""

from __future__ import annotations

from holdfast.checks.attempt import Attempt
from holdfast.checks.connect import connected, reason_of
from holdfast.model.check import TcpCheck


def try_connect(check: TcpCheck, deadline: float) -> Attempt:
    try:
        connected(check.host, check.port, deadline).close()
    except TimeoutError:
        return Attempt(False, "did not answer in time", b"")
    except OSError as error:
        return Attempt(False, f"failed: {reason_of(error)}", b"")
    except ValueError:
        return Attempt(False, "is not a host and a port", b"", hopeless=True)
    return Attempt(True, "accepts connections", b"")
