"""Tries the launcher on a host with several equal GPUs: the choice, every end, and that no process is left.

    python benchmarks/several_gpus.py --task sudoku4

Prints one line for each case; exit 1 if one is not as it must be. A few minutes.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from participants import ROOT, Participant

sys.path.insert(0, str(ROOT))
from relay.app.machine.cards import visible_cards
from relay.core.settings.origins import LEADER

RUN = "several"


def followers(leader: int) -> list[int]:
    """Process ids of those that follow a session."""
    mark, found = f"{LEADER}={leader}\0".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != leader and mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def session(machine: Participant, task: str, *words: str) -> subprocess.Popen[str]:
    """A session that ends only as somebody ends it, or as `words` say."""
    every = ("--checkpoint-every", "20", "--new", "evaluation.every_commits=0", "--target-steps", "1000000")
    return machine.start("run", "--run", RUN, f"task={task}", *every, *words)


def ended(process: subprocess.Popen[str], case: str, code: int, say: str = "") -> bool:
    """Whether it ended with that code and nothing is left; prints the case."""
    began = time.monotonic()
    _, err = process.communicate(timeout=300)
    seconds = time.monotonic() - began
    time.sleep(1.0)
    left = followers(process.pid)
    good = process.returncode == code and not left and say in err
    print(
        f"{case:28} exit {process.returncode:4} after {seconds:5.1f} s, {len(left)} left: {'ok' if good else 'WRONG'}"
    )
    if not good:
        print(err[-3000:], file=sys.stderr)
    return good


def until_committed(machine: Participant, more: int) -> None:
    """Wait for some further steps to be durable."""
    first = machine.status(RUN)["step"]
    while machine.status(RUN)["step"] < first + more:
        time.sleep(1.0)


def main() -> None:
    """All cases, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="sudoku4")
    task, found = parser.parse_args().task, visible_cards()
    for index, card in enumerate(found):
        print(
            f"GPU {index}: {card.name}, sm_{card.capability[0]}{card.capability[1]}, {card.used / card.memory:.0%} used"
        )
    if len(found) < 2:
        parser.exit(69, "several_gpus needs two GPUs\n")
    with tempfile.TemporaryDirectory() as folder:
        machine = Participant(Path(folder), "one", processes=len(found))
        auto = session(machine, task, "--until-step", "40", "processes=auto")
        good = [ended(auto, "auto", 75, f"{len(found)} processes")]
        good.append(ended(session(machine, task, "--budget-minutes", "1"), "budget of 60 s", 75))
        for how, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 75)):
            process = session(machine, task)
            until_committed(machine, 20)
            process.send_signal(how)
            good.append(ended(process, how.name, code))
        for how in (signal.SIGKILL, signal.SIGSTOP):
            process = session(machine, task)
            until_committed(machine, 20)
            os.kill(followers(process.pid)[0], how)
            good.append(ended(process, f"follower: {how.name}", 75, "2 of"))
        process = session(machine, task)
        until_committed(machine, 20)
        process.kill()
        good.append(ended(process, "session: SIGKILL", -9))
        links = [link["certified"] for link in machine.status(RUN)["links"]]
        print(f"links: {', '.join(links)}")
        machine.call("verify", "--run", RUN)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
