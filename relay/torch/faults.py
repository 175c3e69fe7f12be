"""Errors of a model's settings and data; the model's plug-in turns them into exit codes. Needs no torch."""

from __future__ import annotations


class TaskError(ValueError):
    """A configuration without a task, or with data that the task cannot have; the message names the setting."""


class DataError(ValueError):
    """Data that cannot be used; the message names the file, the line if there is one, and the fix."""


class NotHere(DataError):
    """Data of a hub that was not downloaded yet, where nothing may be downloaded."""
