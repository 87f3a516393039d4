"""Errors of the jobs, with their exit codes."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every job."""

    OK = 0
    FAILED = 1
    USAGE = 2
    EMPTY = 3
    CONFLICT = 4
    VERSION = 5


class PipelineError(Exception):
    """A job cannot go on; the message is one line that says why and what to do."""

    exit_code = Exit.FAILED


class UsageError(PipelineError):
    """An argument does not fit: a time, a place or message not there, an input of another form."""

    exit_code = Exit.USAGE


class MissingArchiveError(UsageError):
    """There is nothing at the given place of the archive."""


class EmptyArchiveError(PipelineError):
    """There is no archive file at the given place."""

    exit_code = Exit.EMPTY


class ConflictError(PipelineError):
    """Another run changed the tables meanwhile; nothing of this step is written: run it again."""

    exit_code = Exit.CONFLICT


class VersionError(PipelineError):
    """The warehouse was written by another version of the pipeline."""

    exit_code = Exit.VERSION
