"""An item of reasoning_gym, whose answers the model may check: `task: "rg_env:Checked"`."""

import reasoning_gym


class Checked:
    """An item of a data set, whose answers the model may check."""

    @classmethod
    def rows(cls, dataset="chain_sum", size=300, seed=0):
        items = reasoning_gym.create_dataset(dataset, size=size, seed=seed, max_terms=3)
        return [{"question": item["question"], "item": item, "dataset": dataset} for item in items]

    def reset(self, item, dataset, **row):
        self.item, self.score_answer = item, reasoning_gym.get_score_answer_fn(dataset)
        self.tries, self.best = 3, 0.0

    def check(self, answer: str) -> str:
        """Check an answer.

        Args:
            answer: The answer alone.
        """
        if not self.tries:
            raise ValueError("no tries left")
        self.tries -= 1
        score = self.score_answer(answer, self.item)
        self.best = max(self.best, score)
        return "correct" if score == 1 else f"wrong, {self.tries} tries left"

    def get_reward(self) -> float:
        return self.best
