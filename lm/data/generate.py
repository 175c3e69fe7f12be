"""Generated text, equal on every machine: short stories of a small grammar, and p-hop induction.

Each document is a function of its number. Stories have names, counts and agreement. A hop begins at the last letter:
find the letter's previous occurrence and step to the letter behind that. `cabcab|2=a` asks for the letter after two
hops; there a looped stack is known to be nearly as good as one of as many untied blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

from relay.torch import rng

SEED = 1
"""The text is the same for every run, so that runs compare."""
LETTERS, LENGTH, MOST_HOPS = "abcd", 24, 4
ANSWER = "="
"""Stands before the answer."""
_DRAWS, _BLOCK = 64, 256
"""Random numbers of a document, and documents whose numbers are drawn at once."""
_NAMES = (("Ada", "she"), ("Ben", "he"), ("Cleo", "she"), ("Dan", "he"), ("Eva", "she"), ("Finn", "he"), ("Gia", "she"))
_THINGS = ("apple", "book", "candle", "drum", "egg", "flag", "goat", "hat", "jar", "key", "lamp", "map")
_SHADES = ("red", "blue", "small", "old", "round", "heavy", "quiet", "bright")
_PLACES = ("the market", "the river", "the school", "the mill", "the harbor", "the garden")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
T = TypeVar("T")


class _Draws:
    """The random numbers of one document, one after another."""

    def __init__(self, row: Sequence[int]) -> None:
        self._left = iter(row)

    def below(self, bound: int) -> int:
        return next(self._left) % bound

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]


def _count(number: int, shade: str, thing: str) -> str:
    return f"{_NUMBERS[number]} {shade} {thing}{'' if number == 1 else 's'}"


def story(draw: _Draws) -> str:
    """Some hundred bytes."""
    first = draw.below(len(_NAMES))
    (giver, pronoun), (taker, other) = _NAMES[first], _NAMES[(first + 1 + draw.below(len(_NAMES) - 1)) % len(_NAMES)]
    told = [f"{giver} and {taker} meet at {draw.pick(_PLACES)}."]
    for _ in range(1 + draw.below(3)):
        shade, thing, has = draw.pick(_SHADES), draw.pick(_THINGS), 2 + draw.below(9)
        given = 1 + draw.below(has)
        told.append(f"{giver} has {_count(has, shade, thing)}.")
        if draw.below(2):
            told.append(f'{taker} asks: "How many {thing}s do you have?" "{_NUMBERS[has].title()}," says {giver}.')
        told.append(f"{pronoun.title()} gives {_count(given, shade, thing)} to {taker}.")
        left, verb = has - given, "is" if has - given == 1 else "are"
        told.append(f"Now {pronoun} has {_count(left, shade, thing)}, and {other} has {_NUMBERS[given]}.")
        if draw.below(2):
            told.append(f"So {_NUMBERS[left]} {verb} left with {giver}.")
    told.append(f"Then {draw.pick((giver, taker))} walks to {draw.pick(_PLACES)}.")
    return " ".join(told) + "\n"


def hop(draw: _Draws) -> str:
    """Letters without repeats, the number of hops, and the letter that they lead to; '' if they lead nowhere."""
    place, letters = draw.below(len(LETTERS)), ""
    while len(letters) < LENGTH:
        letters += LETTERS[place]
        place = (place + 1 + draw.below(len(LETTERS) - 1)) % len(LETTERS)
    hops = 1 + draw.below(MOST_HOPS)
    answer = landed(letters, hops)
    return f"{letters}|{hops}{ANSWER}{answer}" if answer else ""


def landed(letters: str, hops: int) -> str | None:
    """The letter after so many hops; None if a letter has no previous occurrence."""
    place = len(letters) - 1
    for _ in range(hops):
        before = letters.rfind(letters[place], 0, place)
        if before < 0:
            return None
        place = before + 1
    return letters[place]


def generated(kind: Literal["stories", "hops"], size: int) -> Iterator[str]:
    """Documents of at least `size` bytes together."""
    made, block = story if kind == "stories" else hop, 0
    while size > 0:
        drawn = rng.integers(SEED, block, rng.Stream.TEXT, (_BLOCK, _DRAWS), 0, 2**31)
        block += 1
        for document in filter(None, (made(_Draws(row)) for row in drawn.tolist())):
            size -= len(document)
            yield document
            if size <= 0:
                return
