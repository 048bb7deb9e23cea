"""Episodes: the loop of turns, its limits, and what is stored of it, with scripted models."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from environments_cases import MODULE, call, file_of, task_of
from episodes_cases import SETTINGS, drawn, game, marked
from scripted_model import Scripted, Turns, calls, characters, counting

from orchestrator.probing.episodes import play
from orchestrator.probing.samples import MarkingError, mark_samples, update_marks
from orchestrator.sampling.base import (
    Completion,
    Interrupted,
    Request,
    SamplingError,
    SamplingSettings,
)
from orchestrator.sampling.tool_calls import ToolChat
from orchestrator.storage.schema import SAMPLES
from tasks import TaskError


def acting(what: str) -> Turns:
    """Calls `act` once, and says what came of it."""

    def turn(chat: str, sample: int) -> str:
        made = sample if "act" not in chat else -1
        return calls(call("act", what=what)) if made == 0 else "Done."

    return turn


def test_environments_that_fail_are_errors_and_others_are_not(tmp_path: Path) -> None:
    task = game(tmp_path, [0, 1])
    for what, rule in (("hang", "time-limit@act"), ("exit", "crashed@exit-code-3")):
        rows = marked(acting(what), task, samples=3).to_pylist()
        outcomes = [(row["sample"], row["outcome"], row["score"]) for row in rows]
        assert outcomes == [(0, "error", None), (1, "wrong", 0.0), (2, "wrong", 0.0)] * 2
        assert {row["rule"] for row in rows if row["outcome"] == "error"} == {rule}
        assert all(json.loads(row["episode"]["messages"]) for row in rows)
    [[raised]] = drawn(Scripted(acting("raise")), game(tmp_path))
    assert raised.episode.tool_errors == 1
    assert raised.episode.messages[2]["content"] == "{'error': 'no such thing'}"


def test_too_many_failures_end_the_play_and_what_was_played_stays(tmp_path: Path) -> None:
    """Samples 0 and 1 of each row never call the tool that hangs in all others."""

    def turn(chat: str, sample: int) -> str:
        if sample < 2 or "act" in chat:
            return "Done."
        return calls(call("act", what="hang"))

    limits = {"seconds": 0.5, "memory": 0.5, "processes": 2}
    task = game(tmp_path, [*range(10)], mark_limits=limits)
    requests = [(prompt, range(10)) for prompt in task.train()]
    results = play(Scripted(turn), task, requests, SETTINGS, max_errors=0.04)
    failures = Counter(each.episode.failure for of_row in results for each in of_row)
    failed = failures["time-limit@act"]
    assert failures == {"": 20, "time-limit@act": failed, "not-tried": 80 - failed}
    assert 5 <= failed <= 10, "more than 4 in one process, or in both"
    problem = rf"{failed} of {failed + 20} episodes failed in {MODULE}:Guess \({failed} × time-l"
    with pytest.raises(MarkingError, match=problem):
        mark_samples(task, requests, results, 0.04)


def test_an_episode_is_played_to_its_end(tmp_path: Path) -> None:
    sampler = Scripted(counting)
    [[completion]] = drawn(sampler, game(tmp_path))
    episode = completion.episode
    assert [m["role"] for m in episode.messages] == [
        "user",
        *["assistant", "tool"] * 3,
        "assistant",
    ]
    assert episode.messages[0]["content"] == "Game 0. Guess."
    assert [m["content"] for m in episode.messages[2:7:2]] == ["higher", "higher", "correct"]
    assert (episode.turns, episode.tool_calls, episode.tool_errors) == (4, 3, 0)
    assert episode.reward == pytest.approx(1 / 3) and completion.finish == "stop"
    made = [calls(call("guess", number=n)) for n in range(3)]
    assert completion.text == "\n".join(
        [made[0], "higher", made[1], "higher", made[2], "correct", "Done."]
    )
    # The tokens are those of the chat rendered as a whole, and the model's are not masked.
    whole = sampler.tokenizer.apply_chat_template(episode.messages, return_dict=False)
    assert [*episode.prompt_ids, *completion.ids] == whole[:-1], "a line break follows the end"
    assert len(episode.mask) == len(completion.ids) == completion.tokens + episode.tool_tokens
    model = [t for t, m in zip(completion.ids, episode.mask, strict=True) if m]
    assert sampler.tokenizer.decode(model) == "".join(f"{t}<|im_end|>" for t in [*made, "Done."])


@pytest.mark.parametrize(
    ("reward", "outcome"),
    [(1, "correct"), (True, "correct"), (0.5, "wrong"), (None, "unparsed"), ("nan", "error"),
     ("raise", "error"), (1 + 1e-9, "correct")],
)  # fmt: skip
def test_rewards_of_many_kinds(tmp_path: Path, reward: Any, outcome: str) -> None:
    path = file_of(tmp_path, [{"question": "q", "reward": reward}])
    [row] = marked(lambda *_: "Hi.", task_of("Rewards", train=path)).to_pylist()
    assert row["outcome"] == outcome


def counts(chat: str, sample: int) -> str:
    """Counts to the number that the prompt names; sample 1 counts too far."""
    if "tool\n" in chat:
        return "Done."
    target = int(chat.split("Count to ")[1].partition(".")[0])
    return calls(call("increment", step=target + sample))


def test_a_reward_function_reads_environments(tmp_path: Path) -> None:
    path = file_of(tmp_path, [{"episode": 3, "prompt": "Go. "}])
    for name, options in (("counted", {"episodes": 5}), ("told", {"train": path})):
        task = task_of("Draws", marker=f"{MODULE}:{name}", **options)
        second = "wrong" if name == "counted" else "correct"
        outcomes = marked(counts, task, samples=2)["outcome"].to_pylist()
        assert outcomes == ["correct", second] * len(task.train())
    task = task_of("Draws", marker=f"{MODULE}:two", episodes=5)
    with pytest.raises(TaskError, match=r"returned \[1.0, 1.0\] for 1 completion"):
        marked(counts, task)


def test_without_a_reward_the_text_of_all_turns_is_marked(tmp_path: Path) -> None:
    rows = [{"prompt": "Find it.", "number": 2, "gold": "2"}]
    options = {"marker": "text", "answer": "gold", "train": file_of(tmp_path, rows)}
    task = task_of("NoReward", **options)

    def turn(chat: str, sample: int) -> str:
        return counting(chat, sample).replace("Done.", r"\boxed{2}" if sample else "No idea.")

    assert marked(turn, task, samples=2)["outcome"].to_pylist() == ["unparsed", "correct"]


def test_what_was_played_before_an_engine_fails_is_kept(tmp_path: Path) -> None:
    task = game(tmp_path, [0, 3])
    with pytest.raises(Interrupted, match="gone") as stopped:
        drawn(Scripted(counting, stops_after=2), task)
    [[first], [second]] = stopped.value.drawn
    assert first is not None and first.episode is not None and first.episode.reward == 1.0
    assert second is None
    requests = [(prompt, [0]) for prompt in task.train()]
    assert mark_samples(task, requests, stopped.value.drawn).num_rows == 1
    assert [[c.episode.reward] for [c] in drawn(Scripted(counting), task)] == [[1.0], [0.25]]


def test_each_turn_has_randomness_of_its_own_and_the_first_shares_its_prompt(
    tmp_path: Path,
) -> None:
    sampler, task = Scripted(counting), game(tmp_path, [1])
    drawn(sampler, task, samples=3)
    [prompt] = task.train()
    names = [(r.prompt_id.removeprefix(prompt.prompt_id), [*r.samples]) for r in sampler.requests]
    assert names == [("", [0, 1, 2]), ("\x1f1", [0, 1, 2]), ("\x1f2", [0, 1, 2])]


def test_a_reward_that_is_no_score_is_refused(tmp_path: Path) -> None:
    task = task_of("Rewards", train=file_of(tmp_path, [{"question": "q", "reward": 12}]))
    with pytest.raises(TaskError, match=f"{MODULE}:Rewards returned 12"):
        marked(lambda *_: "Hi.", task)


def test_the_limit_counts_all_tokens_and_ends_an_episode(tmp_path: Path) -> None:
    task, sampler = game(tmp_path, [9]), Scripted(counting)
    [[whole]] = drawn(sampler, task, settings=SamplingSettings(max_completion_length=2_000))
    ends = [i for i, m in enumerate(whole.episode.mask) if m != whole.episode.mask[i - 1]][1:]
    for limit in {1, 5, ends[0] - 1, ends[0], ends[1] - 1, ends[1], ends[1] + 5, ends[2] + 1}:
        [[cut]] = drawn(sampler, task, settings=SamplingSettings(max_completion_length=limit))
        assert cut.finish == "length" and len(cut.ids) <= limit
        assert [*cut.ids] == [*whole.ids[: len(cut.ids)]]
        assert [*cut.episode.mask] == [*whole.episode.mask[: len(cut.ids)]]
        in_answer = not whole.episode.mask[min(limit, len(whole.ids) - 1)]
        assert len(cut.ids) == limit or in_answer, "answers that do not fit are left out as a whole"


def test_turns_are_limited(tmp_path: Path) -> None:
    [[completion]] = drawn(Scripted(counting), game(tmp_path, [9], turns=3))
    assert (completion.episode.turns, completion.episode.tool_calls) == (3, 2)
    assert completion.finish == "length" and completion.episode.reward == 0.0


def test_a_chat_that_fills_the_window_ends_without_the_last_answer(tmp_path: Path) -> None:
    task = game(tmp_path, [9])
    [[whole]] = drawn(
        Scripted(counting), task, settings=SamplingSettings(max_completion_length=999)
    )
    window = len(whole.episode.prompt_ids) + 150
    [[cut]] = drawn(Scripted(counting, window), task)
    assert cut.finish == "length" and cut.episode.messages[-1]["role"] == "assistant"
    assert len(cut.ids) == len(cut.episode.mask) and cut.episode.mask[-1] == 1
    [[none]] = drawn(Scripted(counting, 3), task)
    assert none.finish == "error" and not none.ids


@pytest.mark.parametrize(
    "text", ["<tool_call>{</tool_call>", "<tool_call>[]</tool_call>", "<tool_call>", "}{", ""]
)
def test_a_call_that_cannot_be_read_is_text(tmp_path: Path, text: str) -> None:
    [[completion]] = drawn(Scripted(lambda *_: text), game(tmp_path))
    assert completion.episode.turns == 1 and completion.episode.tool_calls == 0
    assert completion.finish == "stop" and completion.episode.reward == 0.0


def test_scores_are_stored_and_another_threshold_marks_the_same_episodes(tmp_path: Path) -> None:
    task = game(tmp_path, [0, 1, 2, 9], turns=4)
    samples = marked(counting, task)
    assert samples.schema.equals(SAMPLES)
    assert samples["outcome"].to_pylist() == ["correct", "wrong", "wrong", "truncated"]
    assert samples["score"].to_pylist() == pytest.approx([1, 1 / 2, 1 / 3, 0])
    lower = game(tmp_path, [0, 1, 2, 9], turns=4, threshold=0.5)
    prompts = {prompt.prompt_id: prompt for prompt in task.train()}
    again = update_marks(samples, lower, prompts)
    assert again["outcome"].to_pylist() == ["correct", "correct", "wrong", "truncated"]
    assert again["episode"].equals(samples["episode"])


class Texts(Scripted):
    """A server: texts without token ids, and its own number of tokens."""

    def turn(self, request: Request, sample: int, settings: SamplingSettings) -> Completion:
        completion = super().turn(request, sample, settings)
        return completion._replace(ids=(), tokens=completion.tokens - 1)


def test_texts_without_token_ids_are_played_and_their_tokens_counted_by_the_engine(
    tmp_path: Path,
) -> None:
    task = game(tmp_path)
    [[completion]], [[expected]] = (drawn(kind(counting), task) for kind in (Texts, Scripted))
    assert completion.text == expected.text and completion.ids == expected.ids
    assert completion.tokens == expected.tokens - expected.episode.turns


def test_models_that_cannot_play(tmp_path: Path) -> None:
    task, sampler = game(tmp_path), Scripted(counting)
    sampler.tokenizer.chat_template = "{{ messages[0].content }}"
    with pytest.raises(SamplingError, match="tool calls"):
        drawn(sampler, task)
    sampler = Scripted(counting)
    sampler.tokenizer.response_template = None
    with pytest.raises(SamplingError, match="response_template"):
        drawn(sampler, task)
    with pytest.raises(SamplingError, match="token ids"):
        play(cast(Any, object()), task, [], SETTINGS)


def test_tokens_after_a_turn_are_those_of_trl() -> None:
    from trl import GRPOTrainer

    tokenizer = characters()
    chat = ToolChat(tokenizer, [], {})
    trainer = SimpleNamespace(
        _is_vlm=False,
        processing_class=tokenizer,
        _tokenizer=tokenizer,
        chat_template=None,
        chat_template_kwargs={},
    )
    for results in (["one"], ["one", "two"], [""], ["<|im_end|>"]):
        messages = [{"role": "tool", "name": "guess", "content": text} for text in results]
        expected = GRPOTrainer._get_tool_suffix_ids(cast(Any, trainer), messages)
        assert chat.suffix(messages) == expected
