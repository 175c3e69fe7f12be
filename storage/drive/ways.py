"""The slots of a log on Drive, which begins as a chain of ids and may go on by compare-and-set."""

from __future__ import annotations

from storage.drive.chain import ChainSlots

DriveSlots = ChainSlots
