"""Every error that mockllm raises for a reason a user can act on.

Each carries its HTTP status (when it is met while answering a request) and its exit code (when it ends a
command). Its text is one line that says what was wrong and what to do. It knows nothing of who prints it.
"""


class MockllmError(Exception):
    """The base: something went wrong that the user can mend."""

    status = 500
    exit_code = 1
    kind = "mockllm_error"


class UsageError(MockllmError):
    """An option or argument makes no sense."""

    status = 400
    exit_code = 2
    kind = "mockllm_usage"


class CassetteError(MockllmError):
    """A cassette that cannot be read: says file, line, what was found and what was expected."""

    kind = "mockllm_bad_cassette"

    def __init__(self, source: str, line: int, found: str, expected: str) -> None:
        super().__init__(f"{source}:{line}: found {found}; expected {expected}")
        self.source = source
        self.line = line
        self.found = found
        self.expected = expected


class UpstreamError(MockllmError):
    """The real server could not be reached; nothing was sent to it.

    `reason` is one of `dns`, `refused`, `unreachable`, `tls`, `timeout`, `proxy`.
    """

    status = 502
    kind = "mockllm_upstream"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NoMatchError(MockllmError):
    """No recording answers a request."""

    status = 404
    exit_code = 3
    kind = "mockllm_no_match"


class UnusedError(MockllmError):
    """Recordings that nobody asked for, where that was to be reported."""

    exit_code = 4
    kind = "mockllm_unused"


class CredentialsError(MockllmError):
    """Something that looks like a credential stands in a cassette."""

    exit_code = 5
    kind = "mockllm_credentials"
