"""The errors that users see, as plain Python.

Knows what went wrong and which field, limit or node it concerns. Knows nothing of gRPC or HTTP:
trunkline.rpc.status gives each class its status code, and a test holds that map complete.
"""

from __future__ import annotations


class TrunklineError(Exception):
    """Base of every error that may reach a client. `message` is one sentence that a user can act on."""

    #: Machine-readable cause, as in google.rpc.ErrorInfo.reason.
    reason = "INTERNAL"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def metadata(self) -> dict[str, str]:
        """What the error concerns, for google.rpc.ErrorInfo.metadata."""
        return {}


class InvalidArgument(TrunklineError):
    """The request can never succeed as it is. `field` is the proto path of what is wrong with it."""

    reason = "INVALID_ARGUMENT"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.description = message

    @property
    def metadata(self) -> dict[str, str]:
        return {"field": self.field}


class NotFound(TrunklineError):
    """`what` (for example "model") named `name` does not exist here."""

    reason = "NOT_FOUND"

    def __init__(self, what: str, name: str, hint: str = "") -> None:
        super().__init__(f"{what} {name!r} not found" + (f": {hint}" if hint else ""))
        self.what = what
        self.name = name

    @property
    def metadata(self) -> dict[str, str]:
        return {"resource_type": self.what, "resource_name": self.name}


class FailedPrecondition(TrunklineError):
    """Two parts that do not fit each other (protocol, fingerprint, block size, epoch) were brought together."""

    reason = "FAILED_PRECONDITION"


class ResourceExhausted(TrunklineError):
    """Full for now. `retry_after_s` says when another try makes sense."""

    reason = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(TrunklineError):
    """A node (or Redis) went away or is not there yet; the same request may succeed later."""

    reason = "UNAVAILABLE"

    def __init__(self, message: str, node: str = "") -> None:
        super().__init__(message)
        self.node = node

    @property
    def metadata(self) -> dict[str, str]:
        return {"node": self.node} if self.node else {}


class DeadlineExceeded(TrunklineError):
    """The client's deadline passed."""

    reason = "DEADLINE_EXCEEDED"


class Cancelled(TrunklineError):
    """The caller gave up."""

    reason = "CANCELLED"


class Internal(TrunklineError):
    """A fault of ours. The message says what to look for in the logs, not how the code looks inside."""

    reason = "INTERNAL"
