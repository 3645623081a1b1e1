"""Everything that can go wrong on purpose, as one tree.

    MakegoodError
    ├── ConfigurationError      the environment or a setting is wrong; never retried      exit 3
    ├── InputError              the caller asked for something that cannot be             exit 2
    │   ├── UnknownWorkflowType
    │   ├── UnknownOrder                                                                  exit 1
    │   ├── AlreadyStarted      same entity, other parameters
    │   ├── KeyReused           same idempotency key, other parameters
    │   ├── IllegalTransition   the type's graph has no such edge
    │   └── NotAllowed          this person has not the right                             exit 1
    ├── TransientError          the same call may work later
    │   └── DatabaseUnavailable                                                           exit 3
    ├── PermanentError          it will not work however often it is tried: park it       exit 1
    └── InvariantError          a bug, here or in the database: stop and page             exit 1

Each error says which thing is at fault and, where there is one, what to do (``hint``).
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FOUND_WRONG = 1
EXIT_BAD_ARGUMENTS = 2
EXIT_NOT_READY = 3


class MakegoodError(Exception):
    """The base of every error raised on purpose; ``hint`` says what to do about it."""

    exit_code = EXIT_FOUND_WRONG

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ConfigurationError(MakegoodError):
    exit_code = EXIT_NOT_READY


class InputError(MakegoodError):
    exit_code = EXIT_BAD_ARGUMENTS


class UnknownWorkflowType(InputError):
    pass


class UnknownOrder(InputError):
    exit_code = EXIT_FOUND_WRONG


class AlreadyStarted(InputError):
    pass


class KeyReused(InputError):
    pass


class IllegalTransition(InputError):
    pass


class NotAllowed(InputError):
    exit_code = EXIT_FOUND_WRONG


class TransientError(MakegoodError):
    pass


class DatabaseUnavailable(TransientError):
    exit_code = EXIT_NOT_READY


class PermanentError(MakegoodError):
    pass


class InvariantError(MakegoodError):
    pass
