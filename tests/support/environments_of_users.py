"""Environments as users write them for TRL, good and bad."""

import os
import random
import time
from typing import Any


class Guess:
    """A number from 0 to 9 is found by guesses."""

    def __init__(self) -> None:
        self.resets = 0

    def reset(self, number: int, **row: Any) -> str:
        self.number, self.found, self.guesses = int(number), False, 0
        self.resets += 1
        return " Guess."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess.
        """
        self.guesses += 1
        if number == self.number:
            self.found = True
            return "correct"
        return "higher" if number < self.number else "lower"

    def act(self, what: str) -> Any:
        """Do something that no tool should.

        Args:
            what: What to do.
        """
        if what == "raise":
            raise ValueError("no such thing")
        if what == "hang":
            time.sleep(1000)
        if what == "wait":
            time.sleep(0.4)
        if what == "exit":
            os._exit(3)
        if what == "leave":
            raise SystemExit
        if what == "random":
            return random.random()
        if what == "pid":
            return os.getpid()
        if what == "half a pair":
            return "\ud800"
        if what == "blocks":
            return [{"type": "text", "text": "seen"}]
        return what

    def get_reward(self) -> float:
        return float(self.found) / max(1, self.guesses)

    @classmethod
    def rows(cls) -> list[dict[str, Any]]:
        return [{"prompt": f"Range 0 to 9, game {n}.", "number": n % 10} for n in range(30)]


class Stuck(Guess):
    """It hangs in games of the number 5."""

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess.
        """
        if self.number == 5:
            time.sleep(1000)
        return super().guess(number)


class Draws:
    """It draws its own task, and has no reward of its own."""

    def reset(self, **row: Any) -> str:
        self.target, self.counter = random.randint(1, 100), 0
        return f"Count to {self.target}."

    def increment(self, step: int) -> int:
        """Increment the counter.

        Args:
            step: By how much.
        """
        self.counter += step
        return self.counter


def counted(environments: list[Any], **columns: Any) -> list[float]:
    return [float(each.counter == each.target) for each in environments]


def told(
    environments: list[Any], completions: Any, prompts: Any, episode: list[int], log_metric: Any
) -> list[float]:
    [chat], [prompt], [number] = completions, prompts, episode
    assert chat[-1]["role"] == "assistant" and prompt[0]["role"] == "user" and number >= 0
    return [float("Done" in chat[-1]["content"])]


def two(environments: list[Any]) -> list[float]:
    return [1.0, 1.0]


class Rewards:
    """Its rewards are those of its rows."""

    def reset(self, reward: Any, **row: Any) -> None:
        self.reward = reward

    def look(self) -> str:
        """Look around."""
        return "nothing"

    def get_reward(self) -> Any:
        if self.reward == "raise":
            raise RuntimeError("no reward")
        if self.reward == "nan":
            return float("nan")
        return self.reward


class Waits:
    """Its tools are awaited."""

    async def reset(self, **row: Any) -> None:
        self.looks = 0

    async def look(self) -> str:
        """Look around."""
        self.looks += 1
        return f"look {self.looks}"

    async def get_reward(self) -> float:
        return self.looks / 2


class NoReset:
    def look(self) -> str:
        """Look around."""
        return ""


class NoTools:
    def reset(self, **row: Any) -> None: ...

    def get_reward(self) -> float:
        return 1.0


class NoDocstring:
    def reset(self, **row: Any) -> None: ...

    def look(self) -> str:
        return ""


class NoTypes:
    def reset(self, **row: Any) -> str:
        return "Look."

    def look(self, where) -> str:  # type: ignore[no-untyped-def]
        """Look around."""
        return ""

    def get_reward(self) -> float:
        return 1.0


class NoReward(Guess):
    """Its transcript is marked."""

    get_reward = None  # type: ignore[assignment]


class BadReset(Guess):
    def reset(self, **row: Any) -> Any:
        if row.get("number") == "raise":
            raise KeyError("number")
        return 5
