"""Equal shares of clusters of similar questions."""

from datasets import Dataset
from diverse_cases import chosen, kinds_of, pool_of

from decile.trl import PromptSelector


def test_every_kind_of_question_has_an_equal_share() -> None:
    table = pool_of(sum=200, name=30, word=12)
    assert kinds_of(table, chosen(table, 30)) == {"sum": 10, "name": 10, "word": 10}
    assert sorted(kinds_of(table, chosen(table, 10)).values()) == [3, 3, 4]
    assert kinds_of(table, chosen(table, 60)) == {"sum": 24, "name": 24, "word": 12}
    assert sorted(chosen(table, 242)) == [*range(242)]


def test_a_selector_reads_the_questions_of_its_dataset() -> None:
    table = pool_of(sum=40, name=20, word=12)
    texts = table["question"].to_pylist()
    columns = {"prompt_id": table["prompt_id"].to_pylist(), "prompt": texts, "question": texts}
    options = {"clusters": 3}
    selector = PromptSelector(
        "diverse", options=options, dataset=Dataset.from_dict(columns), budget=9
    )
    rows = [int(i[1:]) for i in selector.dataset["prompt_id"][:]]
    assert kinds_of(table, rows) == {"sum": 3, "name": 3, "word": 3}


def test_the_seed_decides_within_a_cluster() -> None:
    table = pool_of(sum=200, name=30, word=12)
    first, other = chosen(table, 30), chosen(table, 30, seed=1)
    assert first == chosen(table, 30) and {*first} != {*other}
    assert chosen(table, 12) == first[:12], "a larger subset starts with the smaller one"
    reached = {row for seed in range(60) for row in chosen(table, 9, seed=seed)}
    assert kinds_of(table, sorted(reached))["word"] == 12
