"""What a command reports instead of a traceback, each kind with its exit status."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_INTERRUPTED = 130


class UsageError(ValueError):
    """The request is wrong: an unknown name, a value out of range, a combination that cannot be (exit 2)."""


class EnvironmentProblem(RuntimeError):
    """The machine is not ready: data missing or altered, a folder not writable, no space (exit 3)."""
