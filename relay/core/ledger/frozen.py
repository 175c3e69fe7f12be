"""Values that stored bytes depend on. Nothing here is ever changed or reworded; new values may be added.

An entry of a ledger counts only if the state that follows from its change has exactly the bytes that the entry carries,
and every reader computes that state again (PROTOCOL P4). If one word or number of part A changes, this version calls
entries void that other people wrote. The run then falls back to an older step and an older epoch, an epoch is leased a
second time, and keys of checkpoints that exist already are used again.

Part B holds texts that sessions store and that readers act on: with another spelling, readers misjudge the sessions of
every older version. Part C, what two sessions compare (step paths, tensor names, settings, people), stays where it is
computed; tests/frozen pins it.

Messages to people never come from here, so a clean-up of wording leaves this file alone. The module imports nothing of
ours. tests/frozen compares each value with tests/data/frozen/values.json and judges a golden store from slot 0.

No entry format is introduced for its own sake. Once a new one is needed for another reason, these texts become codes in
it: `RunState.halted` (cause and step), the texts of `void-entry`, `passed-over`, `step-back`, `not-kept`, `archived`
and `unarchived` (slots, step, epoch), `Link.end`, `TookOver.reason` and `Link.why`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# --- A: what every reader computes again ------------------------------------------------------------------------------

TEXT, LINE = 500, 100
"""Bytes that a text or a line takes at most as JSON; longer ones are cut by `clean`."""

_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Lists, not Python's own tables: every version of Python must compute the same state from the same entry."""


def clean(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """One line of at most `limit` by `size`: control characters become spaces; invisible and direction marks go."""
    visible = _HIDDEN.sub("", _BREAKS.sub(" ", text[: 10 * limit]))
    line = " ".join(part for part in visible.split(" ") if part)[:limit]
    while size(line) > limit:
        line = line[: len(line) * limit // size(line)]
    return line.strip(" ")


def escaped(text: str) -> int:
    """Bytes of a text inside canonical JSON, where all but ASCII is escaped."""
    return len(json.dumps(text)) - 2


EMPTY: tuple[Any, ...] = (None, (), [], {})
"""Values of an added field that are not written. 0, 0.0, False and '' are."""
ADDED: Mapping[str, tuple[str, ...]] = {
    "Entry": ("passed",),
    "Kept": ("base",),
    "Passed": ("kept", "unkept", "hinted"),
    "RunState": ("gpus", "archived", "deleted", "kept", "skipped"),
    "Named": ("beat",),
    "Checkpoint": ("base",),
    "Link": ("gpu",),
    "Usage": ("by_gpu",),
    "Lease": ("beat", "gpu"),
    "Commit": ("samples",),
    "Row": ("claims",),
    "PutAccount": ("claim",),
}
"""Fields of stored objects that are newer than the first version, by class. They are left out while empty, so that
entries without them stay the same bytes. A name is added here in the version that adds the field, and never later."""

MAX_ENTRY_BYTES = 256_000
MAX_DEPTH, MAX_DIGITS = 32, 20
"""Of JSON that a stranger wrote: nesting, and digits of an integer."""
USUAL, SHARING, PASSING = 3, 4, 5
"""The format that is written where nothing needs a newer one, and the two newer ones. Each allows fields that a client
of the one before would take for damage: 2 a heartbeat's Ref and GPUs, 3 a commit's samples, 4 (written only while a
retained checkpoint shares files) a checkpoint's base, 5 (written only by an entry that passes over slots, while the
state keeps a checkpoint that such an entry passed over, and while a retained one is in a folder with a token) these."""

MAX_LINKS = 100
"""At this many links the next lease must move the oldest half to a history object."""
MAX_INCIDENTS, MAX_FAILURES = 20, 8
MAX_RETAINED, MAX_SHARING = 48, 45
"""The second where any of them shares files: more of these would not fit into an entry."""
MAX_RETIRED = 200
KEPT_CHECKPOINTS = 2
"""The newest undamaged checkpoints that may never be retired (P8)."""
MAX_ACCOUNTS = 520
MAX_INTERVALS = 1500
"""Over all accounts of a run; beyond it the busiest account's oldest two become one of the same total length."""
INTERVALS_OF_TWO_KINDS = 3
"""Two kinds of GPU in an account's usage take the room of so many intervals."""
MAX_FURTHER = 120
"""Kinds beyond each account's first, over all accounts; sessions beyond are counted, and not told by kind."""
MAX_GPUS = 8
"""Kinds of GPU that a run tells apart in its accounts' usage; a link names its own whatever it is."""
KEPT_S = 15 * 86400
"""How long a session's interval is kept; lifetime totals stay for ever."""
WHOLE = 2**53 - 1
"""The largest whole number in a state."""
WAIT_S = 86_400.0
"""Store time between `archive` and `delete`: for the others to see it, and for whoever reads to end."""
MAX_DIGESTS = 32
"""Slots passed over whose digests an entry names: the newest of them."""
MAX_KEPT = 16
"""Checkpoints that a run keeps beside its retained ones: the newest of them."""
MAX_LEAP = 2**32
"""By how much a person's choice may raise the epoch: more sessions than any run can have had."""
MAX_ROWS, MAX_COLUMNS = 32, 12
"""Of a commit's samples."""
MAX_METRICS, MAX_NAME = 32, 64
"""Metrics of a commit, and letters of a metric's name."""
SAMPLES_LATE_S = 1
"""A commit's samples may be this much later than the commit says that it is."""
MAX_RUNS, MAX_REGISTERED = 200, 1000
"""Of a store's registry."""
MAX_CLAIMS = 8
"""An account that was described in more ways than this is not edited any further."""

NON_FINITE, OUT_OF_MEMORY, CRASH = "non-finite", "out-of-memory", "crash"
"""Causes of failures: two equal failures halt the run, also where two versions noted them."""
MACHINE_LIMIT = "machine-limit"
"""Cause of an incident that is no failure of the run: the session's machine lacked threads, open files or memory."""
RESUMED, ARCHIVED, UNARCHIVED, REWIND = "resumed", "archived", "unarchived", "rewind"
VOID_ENTRY, PASSED_OVER, STEP_BACK, REPAIRED = "void-entry", "passed-over", "step-back", "repaired"
NOT_KEPT = "not-kept"
ADVICE: Mapping[str, str] = {
    NON_FINITE: "Lower the learning rate or change the seed, and fork from an earlier checkpoint.",
    OUT_OF_MEMORY: "Use a device with more memory, or fork with a smaller batch_size.",
}
OTHERWISE = "Change what fails: the code, the device or the configuration (a fork)."
"""The advice for every other cause."""
ARCHIVED_BY_HAND, MAY_TRAIN_AGAIN = "Archived by hand.", "May train again."


def halted(cause: str, step: int) -> str:
    """`RunState.halted` after the second equal failure."""
    return (
        f"The same failure ({cause} at step {step}) happened twice without a commit between. "
        f"{ADVICE.get(cause, OTHERWISE)} Or try again as it is: resume --anyway."
    )


def void(slots: Sequence[int]) -> str:
    """Of slots before an entry of formats 1 to 4."""
    if len(slots) > 1:
        return f"The entries in slots {slots[0]} to {slots[-1]} were void and changed nothing."
    return f"The entry in slot {slots[0]} was void and changed nothing."


def passed_over(slots: Sequence[int], digest: str) -> str:
    """Of slots that an entry of format 5 passes over; the digest of the newest."""
    return f"{_named(slots)}, sha256 {digest[:16]}"


def step_back(step: int, epoch: int, slots: Sequence[int]) -> str:
    """Of a checkpoint that is kept because those slots may have committed it."""
    return f"step {step} of epoch {epoch} may have been committed in {_named(slots)}, passed over; it is kept"


def not_kept(count: int) -> str:
    """Of checkpoints that passed slots may have committed, and for which there is no room beside newer ones."""
    return f"only the newest {MAX_KEPT} checkpoints that may have been committed are kept, and not {count} before them"


def _named(slots: Sequence[int]) -> str:
    return f"slot {slots[0]}" if len(slots) == 1 else f"slots {slots[0]}-{slots[-1]}"


# --- B: what is read back from stored text ----------------------------------------------------------------------------

OPEN = "open"
"""`Link.end` of a session that has not ended; part of A too."""
DEAD, SILENT, LATE = "process on the same machine is gone", "no sign of life", "past its latest end"
GONE = frozenset({DEAD, SILENT, LATE})
"""How a session that never released was found to be gone, and so how its link ends."""
TARGET_REACHED, BUDGET_USED, ASKED_TO_STOP = "target reached", "budget used", "asked to stop"
SPOT_NOTICE, TERMINATED, INTERRUPTED = "spot notice", "terminated (SIGTERM)", "interrupted (SIGINT)"
UNTIL_REACHED = "its last step reached"
"""Of a session that was asked to end before the target."""
FENCED, BAD_DATA, UNREACHABLE = "fenced", "bad data", "storage unreachable"
TRAINS_ANOTHER, UPLOAD_FAILED = "account trains another run", "last upload failed"
CRASHED, FAILED, BROKEN_OFF = "crashed", "failed", "interrupted"
"""The last: what ended the session was no error of ours, nor one of training."""
PROCESS_LOST = "one of its processes is gone"
"""Of a session of several processes: one died, or did not answer; what the first one held is committed."""
PUSHED, NOTHING_TO_PUSH = "pushed", "nothing left to push"
NOT_SENT = "last upload did not fit"
"""Follows the text of a spot notice that left too little time."""
SIGNALED = ("terminated", "interrupted")
"""Beginnings of the ends of sessions that a signal ended."""


def not_sent(notice: str) -> str:
    """The end of a session whose last upload did not fit into what a spot notice left."""
    return f"{notice}; {NOT_SENT}"


def halted_elsewhere(surroundings: str) -> str:
    """`Resume.why` of a session that goes on where sessions of other surroundings failed; the digest of its own."""
    return f"The failures came from other surroundings than {surroundings[:16]}."


FIRST_SESSION = "the run's first session"
SENT_AGAIN = "sent again from a machine that had a copy"
"""`Link.why` of sessions whose first step there is nothing to compare with. The second began with the state that its
rewind had left: nothing was lost, nothing trained again."""
WEIGHTS_ONLY = "weights-only"
"""In the place of `Origin.project`: the run began from somebody's file of weights, which never was a whole state. Then
`Origin.run` is that file's name, as far as it can be one, and `Origin.entry` its hash."""
EVALUATED_STEP, EVALUATED_SCORE, EVALUATED_ROWS = "evaluated_step", "evaluated_score", "evaluated_rows"
"""Metrics in which a commit carries the run's newest evaluation (relay/core/ledger/evaluations.py)."""
ASKED = "asked"
"""Ends the name of a metric that says how many rows of a reading the commit at the target was to evaluate, if it lacks
the results: `test/asked`."""
RECOMPUTED, TRACKER, TARGET, RETENTION, NOTE = "recomputed", "tracker", "target", "retention", "note"
"""Causes of incidents that sessions note beside the failures and what the rules note; the last is a person's text."""
TESTED = "tested"
"""Cause of an incident that holds results of a test that the commit does not carry (relay/core/ledger/finaltest.py)."""


def tested(reading: str, state_hash: str, part: int, parts: int, results: str) -> str:
    """Results of one reading of the state with that hash: `name=value` with blanks between, in one or several parts."""
    return f"{reading} of state {state_hash[:16]}, part {part} of {parts}: {results}"
