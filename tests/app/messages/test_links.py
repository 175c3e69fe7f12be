"""A handoff in words: whose step a session continues, whether its link is exact, and the sum of all links."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from relay.app.commands.sessions.outcomes import Ended, sentence
from relay.app.messages import links
from relay.app.messages.links import link_line
from relay.core.errors import Exit
from relay.core.ledger.fields import Certified
from relay.core.ledger.frozen import FIRST_SESSION
from relay.core.ledger.state import Link
from relay.core.session.context import Outcome
from tests.core.lab import Lab, said, with_plan
from tests.core.toy import ToyWorkload

EXACT = link_line("exact", "")


def link(number: int, certified: Certified = "unknown", why: str = "") -> Link:
    return Link(
        epoch=number, account=f"account_{number}", from_step=number, to_step=number, certified=certified, why=why,
        started=0.0,
    )  # fmt: skip


def test_a_session_says_whose_step_it_continues_and_that_the_link_is_exact(lab: Lab) -> None:
    lab.run(lab.session("alice", target_steps=1067, every_steps=500))
    assert not [line for line in lab.told if "link" in line or "Continuing" in line]
    outcome = lab.run(lab.session("bob", target_steps=1080))
    assert "1,067 → 1,080" in lab.told[0]
    assert all(fact in lab.told[1] for fact in ("1,067", "alice", "epoch 1")) and lab.told[2] == EXACT
    assert (outcome.certified, outcome.durable_step) == ("exact", 1080)
    assert links.briefly("exact", "") in sentence(Ended(outcome, said(outcome)))


def test_a_link_that_is_not_exact_or_unknown_says_why(lab: Lab) -> None:
    lab.run(lab.session(target_steps=20))
    other = {"device": "toy", "driver": "2"}
    lab.run(lab.session(target_steps=40, workload=ToyWorkload(impure=1, environment=other)))
    assert lab.told[2] == link_line("not-exact", "driver absent -> 2") and "(driver absent -> 2)" in lab.told[2]
    outcome = lab.run(lab.session(target_steps=60, workload=ToyWorkload(path="compiled")))
    why = "another path: toy then, compiled now"
    assert lab.told[2] == link_line("unknown", why) and why in lab.told[2]
    assert f"Link: unknown ({why})." in sentence(Ended(outcome, said(outcome)))


@pytest.mark.parametrize(("certified", "why"), [("unknown", ""), ("unknown", FIRST_SESSION)])
def test_where_nothing_could_be_compared_nothing_is_said(certified: Certified, why: str) -> None:
    assert not link_line(certified, why) and not links.briefly(certified, why)
    outcome = Outcome(Exit.OK, 5, made_step=5, commits=1, certified=certified, why=why)
    assert "Link" not in sentence(Ended(outcome, "Done."))


def test_a_long_start_is_told_since_a_budget_counts_it(lab: Lab) -> None:
    session = lab.session(budget_s=60.0, target_steps=10_000)
    limits = session.ctx.plan.limits
    with_plan(session, limits=replace(limits, started=limits.started - 25.0))
    outcome = lab.run(session)
    assert 24 < outcome.start_s < 27 and outcome.start_s + outcome.total_s < 60
    assert outcome.goodput == pytest.approx(0.55, abs=0.005)
    assert "25 s of starting" in sentence(Ended(outcome, said(outcome)))
    brief = Outcome(Exit.OK, 5, made_step=5, commits=1, total_s=60.0, start_s=3.0)
    assert "starting up" not in sentence(Ended(brief, "Done."))
    told = sentence(Ended(replace(brief, total_s=10.0), "Done."))
    assert "3 s of starting" in told, "otherwise goodput would not follow"


def test_the_sum_of_links_leaves_out_what_was_never_judged() -> None:
    chain = [link(1, why=FIRST_SESSION), link(2), link(3, "exact"), link(4, "not-exact", "torch 1 -> 2"), link(5)]
    assert re.findall(r"\d+", links.counts(chain, 7)) == ["1", "1", "7"]
    assert all(fact in (links.last(chain) or "") for fact in ("account_4", "step 4", "torch 1 -> 2"))
    assert links.last(chain[:2]) is None and "(1 session)" in links.counts(chain[:1], 1)
