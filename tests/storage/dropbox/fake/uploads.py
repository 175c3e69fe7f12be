"""Upload sessions of the fake Dropbox, sequential and concurrent; knows neither paths nor HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from dropbox import files

from tests.storage.dropbox.fake.tree import Refused

BLOCK = 1 << 22
WEEK = 7 * 86400.0
LARGEST = 2**41 - 2**22


@dataclass
class Session:
    """What arrived so far, by offset."""

    id: str
    owner: str
    born: float
    concurrent: bool
    pieces: dict[int, bytes] = field(default_factory=dict)
    closed: bool = False
    committed: bool = False

    @property
    def contiguous(self) -> int:
        """Bytes from the beginning without a hole."""
        end = 0
        while self.pieces.get(end):
            end += len(self.pieces[end])
        return end

    @property
    def total(self) -> int:
        """The end of the piece that lies farthest."""
        return max((offset + len(piece) for offset, piece in self.pieces.items()), default=0)

    def data(self) -> bytes:
        """Everything, in order."""
        return b"".join(self.pieces[offset] for offset in sorted(self.pieces))


class Uploads:
    """All sessions of all accounts. `twice` says what becomes of a concurrent piece that is sent again: the
    documentation does not tell, so each answer can be had."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.twice: str = "accepted"
        self._number = count(1)

    def start(self, owner: str, arg: files.UploadSessionStartArg, body: bytes, now: float) -> Session:
        """A new session. Raises Refused(UploadSessionStartError)."""
        concurrent = bool(arg.session_type and arg.session_type.is_concurrent())
        if concurrent and body:
            raise Refused(files.UploadSessionStartError.concurrent_session_data_not_allowed)
        if concurrent and arg.close:
            raise Refused(files.UploadSessionStartError.concurrent_session_close_not_allowed)
        session = Session(f"pid_upload_session:{next(self._number):032x}", owner, now, concurrent)
        if body:
            session.pieces[0] = body
        session.closed = arg.close
        self.sessions[session.id] = session
        return session

    def append(self, owner: str, arg: files.UploadSessionAppendArg, body: bytes, now: float) -> None:
        """Add a piece. Raises Refused(UploadSessionAppendError)."""
        error = files.UploadSessionAppendError
        session = self._find(owner, arg.cursor.session_id, now)
        if session is None:
            raise Refused(error.not_found)
        if session.closed or session.committed:
            raise Refused(error.closed)
        if arg.cursor.offset + len(body) > LARGEST:
            raise Refused(error.too_large)
        if session.concurrent:
            self._check_concurrent(session, arg, body)
        elif arg.cursor.offset != session.contiguous:
            raise Refused(error.incorrect_offset(files.UploadSessionOffsetError(session.contiguous)))
        if body:
            session.pieces[arg.cursor.offset] = body
        session.closed = arg.close

    def finish(self, owner: str, arg: files.UploadSessionFinishArg, body: bytes, now: float) -> Session:
        """A session that can be committed. Raises Refused(UploadSessionFinishError)."""
        error, lookup = files.UploadSessionFinishError, files.UploadSessionLookupError
        session = self._find(owner, arg.cursor.session_id, now)
        if session is None:
            raise Refused(error.lookup_failed(lookup.not_found))
        if session.committed:
            raise Refused(error.lookup_failed(lookup.closed))
        if session.concurrent:
            if body:
                raise Refused(error.concurrent_session_data_not_allowed)
            if not session.closed:
                raise Refused(error.concurrent_session_not_closed)
            if session.contiguous != session.total:
                raise Refused(error.concurrent_session_missing_data)
        if arg.cursor.offset != session.contiguous:
            wrong = files.UploadSessionOffsetError(session.contiguous)
            raise Refused(error.lookup_failed(lookup.incorrect_offset(wrong)))
        if body:
            session.pieces[arg.cursor.offset] = body
        return session

    def _check_concurrent(self, session: Session, arg: files.UploadSessionAppendArg, body: bytes) -> None:
        error = files.UploadSessionAppendError
        if arg.cursor.offset % BLOCK:
            raise Refused(error.concurrent_session_invalid_offset)
        if len(body) % BLOCK and not arg.close:
            raise Refused(error.concurrent_session_invalid_data_size)
        if arg.cursor.offset in session.pieces and self.twice == "lost":
            raise Refused(error.not_found)
        if arg.cursor.offset in session.pieces and self.twice == "refused":
            raise Refused(error.incorrect_offset(files.UploadSessionOffsetError(session.contiguous)))

    def _find(self, owner: str, id_: str, now: float) -> Session | None:
        session = self.sessions.get(id_)
        return session if session and session.owner == owner and now - session.born < WEEK else None
