"""The one exception tree of the relay and its exit codes; knows how to speak to a person, not how to recover."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Process exit codes (sysexits style, stable; DESIGN.md section 6)."""

    OK = 0
    BUG = 1
    USAGE = 2
    BAD_DATA = 65
    STORAGE_UNREACHABLE = 69
    LEASE_HELD = 73
    UPLOAD_FAILED = 74
    HANDOFF = 75
    FENCED = 76
    POLICY = 77
    BAD_CONFIG = 78
    SIGINT = 130
    SIGTERM = 143


KINDS: dict[int, str] = {
    Exit.BUG: "Bug",
    Exit.USAGE: "UsageError",
    Exit.BAD_DATA: "BadData",
    Exit.STORAGE_UNREACHABLE: "StorageUnreachable",
    Exit.LEASE_HELD: "LeaseHeld",
    Exit.UPLOAD_FAILED: "UploadFailed",
    Exit.FENCED: "Fenced",
    Exit.POLICY: "PolicyRefused",
    Exit.BAD_CONFIG: "BadConfig",
    Exit.SIGINT: "Interrupted",
    Exit.SIGTERM: "Terminated",
}
"""What the `error` of relay.error/1 may say: one name for each exit code that is an error."""


class RelayError(Exception):
    """Something a person can act on: `str(e)` is one paragraph that names what, to what, and the fix.

    RelayError
    ├── UsageError          2   the command line
    ├── BadData            65   checkpoint, ledger or input file damaged; a halted run
    ├── StorageUnreachable 69   storage does not answer, or refuses
    ├── LeaseHeld          73   somebody else is training this run (or this account trains another)
    ├── UploadFailed       74   the last commit is on this machine only, or its outcome is unknown
    ├── Fenced             76   this session lost its lease while it ran
    ├── PolicyRefused      77   a provider's rule, or ours
    └── BadConfig          78   configuration, identity or environment
    """

    exit_code: Exit = Exit.BUG


class UsageError(RelayError):
    """The command line is wrong."""

    exit_code = Exit.USAGE


class BadData(RelayError):
    """Checkpoint, ledger or input data is damaged, or the run is halted."""

    exit_code = Exit.BAD_DATA


class StorageUnreachable(RelayError):
    """The store does not answer or refuses us."""

    exit_code = Exit.STORAGE_UNREACHABLE


class LeaseHeld(RelayError):
    """Another session holds the lease, or this account holds one on another run."""

    exit_code = Exit.LEASE_HELD


class UploadFailed(RelayError):
    """The final state is verified locally but not committed, or the outcome is unknown."""

    exit_code = Exit.UPLOAD_FAILED


class Fenced(RelayError):
    """A later epoch exists: this session may write nothing more."""

    exit_code = Exit.FENCED


class PolicyRefused(RelayError):
    """Refused by a provider's rule or by ours."""

    exit_code = Exit.POLICY


class BadConfig(RelayError):
    """Configuration, run identity or environment does not fit."""

    exit_code = Exit.BAD_CONFIG
