"""An environment of several turns, with the interface of TRL's `environment_factory`.

datasets:
  guess: {task: "my_env:Guess", options: {path: rows.jsonl}}  # columns prompt and number
"""


class Guess:
    """Find a number by guesses."""

    def reset(self, number, **row):  # the row's columns; may return text for the prompt
        self.number, self.found = number, False

    def guess(self, number: int) -> str:  # a tool: any public method with a docstring
        """Guess the number.

        Args:
            number: Your guess.
        """
        self.found = number == self.number
        return "correct" if self.found else "higher" if number < self.number else "lower"

    def get_reward(self) -> float:  # the score of the episode, from 0 to 1
        return float(self.found)
