# SPDX-License-Identifier: GPL-3.0-or-later
"""What `build-aux/bench window` says of its figures, on a machine that has time and on one that has
none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "build-aux"))

from bench_heart import Beat, Figures, Verdict, judge

pytestmark = pytest.mark.anybody

QUIET, SLOW = Figures(5, 1), Figures(300, 40)
LONG = [Figures(100, 1), Figures(5, 20), SLOW]


def test_short_gaps_are_reached_whatever_is_beside() -> None:
    assert judge(Figures(99, 19), QUIET, QUIET, QUIET, QUIET) is Verdict.REACHED
    assert judge(Figures(99, 19), QUIET, SLOW, QUIET, QUIET) is Verdict.REACHED


@pytest.mark.parametrize("gaps", LONG)
def test_long_gaps_are_missed_where_nobody_else_caused_them(gaps: Figures) -> None:
    assert judge(gaps, QUIET, beside=QUIET, without=gaps, alone=gaps) is Verdict.MISSED


@pytest.mark.parametrize("gaps", LONG)
def test_long_gaps_cannot_be_told_where_a_bare_window_had_them_too(gaps: Figures) -> None:
    assert judge(gaps, QUIET, beside=SLOW, without=gaps, alone=QUIET) is Verdict.SLOW


@pytest.mark.parametrize("gaps", LONG)
def test_long_gaps_cannot_be_told_where_others_had_the_cores(gaps: Figures) -> None:
    assert judge(gaps, QUIET, beside=QUIET, without=QUIET, alone=gaps) is Verdict.BUSY


@pytest.mark.parametrize("ours", LONG)
def test_long_gaps_of_our_own_are_missed_however_slow_the_machine_is(ours: Figures) -> None:
    assert judge(SLOW, ours, beside=SLOW, without=QUIET, alone=QUIET) is Verdict.MISSED


def test_a_bare_window_excuses_only_the_limit_that_it_misses_itself() -> None:
    bare = Figures(300, 1)
    assert judge(SLOW, QUIET, beside=bare, without=SLOW, alone=QUIET) is Verdict.MISSED
    gaps = Figures(300, 1)
    assert judge(gaps, QUIET, beside=bare, without=SLOW, alone=QUIET) is Verdict.SLOW


@pytest.mark.parametrize("gaps", LONG)
def test_a_bare_window_that_stood_still_at_another_moment_excuses_nothing(gaps: Figures) -> None:
    assert judge(gaps, QUIET, beside=SLOW, without=gaps, alone=gaps) is Verdict.MISSED


def test_a_gap_in_which_we_only_waited_is_ours_alone_but_for_what_both_did() -> None:
    beat = Beat(10, 10.25, gap=250, worked=1, used=1)
    assert beat.share([(9, 10.125)]) == 0
    assert beat.alone([(9, 10.125)]) == 125
    assert beat.alone([(8, 9)]) == 250
    assert beat.alone([(9, 11)]) == 0


def test_what_any_of_our_threads_used_is_our_share_up_to_the_gap() -> None:
    assert Beat(0, 0.2, gap=200, worked=1, used=150).share([]) == 150
    assert Beat(0, 0.2, gap=200, worked=1, used=350).share([]) == 200


def test_what_passed_while_a_bare_window_stood_still_is_not_our_share() -> None:
    beat = Beat(10, 10.25, gap=250, worked=250, used=250)
    assert beat.share([(9, 10.125), (10.1875, 12)]) == 62.5
    assert beat.share([(9, 11)]) == 0
    assert beat.share([(8, 10), (10.25, 11)]) == 250


def test_who_waits_for_our_own_threads_does_not_wait_for_others() -> None:
    assert Beat(0, 1, gap=100, worked=10, used=10, waited=90).without_others == 10
    assert Beat(0, 1, gap=100, worked=10, used=50, waited=90).without_others == 50
    assert Beat(0, 1, gap=100, worked=10, used=190, waited=90).without_others == 100
