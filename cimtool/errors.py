"""What can go wrong for a user, and the exit status that each kind gives."""

from __future__ import annotations


class CimError(Exception):
    """A user's mistake: one sentence naming file, key, value and what was expected."""

    exit_status = 2


class CheckFailed(CimError):
    """A check that the user asked for did not hold: drift over its limit, a bit that differs."""

    exit_status = 1
