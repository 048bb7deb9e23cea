"""`decile.MarkerReward` called as TRL calls a reward function; in TRL's trainer: real/numeric."""

import pickle

import pytest
from paths import ROOT

from decile import MarkerReward, UserError
from tasks import get_task


def chats(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "assistant", "content": text}] for text in texts]


def test_it_marks_texts_and_chats_with_answers_of_any_form() -> None:
    reward = MarkerReward("file", marker="expression")
    texts = (r"so \boxed{1/2}", r"\boxed{3}", "no idea")
    golds = ["0.5", "The sum is 2.\n#### 2", r"\frac{1}{2}"]
    assert reward(completions=chats(*texts), answer=golds, rank=[1, 2, 3]) == [1.0, 0.0, 0.0]
    assert reward(completions=[*texts], answer=golds, completion_ids=[[1]] * 3) == [1.0, 0.0, 0.0]
    assert MarkerReward("gsm8k")(completions=chats(r"\boxed{18}"), answer=[18]) == [1.0]
    assert reward.__name__ == "correct"
    assert pickle.loads(pickle.dumps(reward))(chats(r"\boxed{2}"), ["2"]) == [1.0]


def test_rows_without_an_answer_have_no_reward() -> None:
    reward = MarkerReward("file", marker="text")
    texts = chats(r"\boxed{None}", r"\boxed{nan}", r"\boxed{x}", r"\boxed{x}")
    assert reward(texts, [None, float("nan"), " ", "x"]) == [None, None, None, 1.0]


def test_values_are_read_as_those_of_files_are() -> None:
    reward = MarkerReward("file", marker="number")
    parts = [[{"role": "assistant", "content": [{"type": "text", "text": r"\boxed{61}"}]}]]
    assert reward(parts * 4, [61.0, 61, {"answer": "61"}, ["61"]]) == [1.0] * 4


def test_a_marker_that_reads_the_prompt_needs_its_columns() -> None:
    parts = {
        name: {"task": name, "options": {"train": 20}} for name in ("arithmetic", "plus_minus")
    }
    task, reward = get_task("mix", parts=parts), MarkerReward("mix", parts=parts)
    prompt = task.train()[0]
    given = {"completions": chats(task.solution(prompt) or ""), "answer": [prompt.answer]}
    with pytest.raises(UserError, match="question"):
        reward(**given)
    with pytest.raises(UserError, match="info"):
        reward(**given, question=[prompt.question])
    assert reward(**given, question=[prompt.question], info=[prompt.info]) == [1.0]


def test_what_it_cannot_mark_is_refused() -> None:
    with pytest.raises(UserError, match="no option"):
        MarkerReward("gsm8k", markr="number")
    with pytest.raises(UserError, match="environment_factory"):
        MarkerReward("number_guess")
    with pytest.raises(UserError, match="answer"):
        MarkerReward("gsm8k")(completions=chats("1"), solution=["1"])


def test_the_lines_of_the_page_run() -> None:
    text = (ROOT / "docs" / "trainers.md").read_text()
    code = text[text.index("from decile import MarkerReward\n\nreward") :].partition("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    reward = names["reward"]
    assert isinstance(reward, MarkerReward)
    assert reward(chats(r"\boxed{1/2}"), ["0.5"]) == [1.0]
