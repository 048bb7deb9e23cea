"""Failures by form: what counts as one, and which prompts a policy takes because of it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from factories import sample_row, small_plan

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.difficulty.probe_table import CellTables
from orchestrator.difficulty.remedies import (
    FORM,
    FORMS,
    form_counts,
    form_note,
    form_remedies,
    unread_answers,
)
from orchestrator.difficulty.sources import by_agreement
from orchestrator.difficulty.table import difficulty
from orchestrator.probing.other_forms import in_other_form, reads_texts
from orchestrator.probing.probe_folder import ProbeFolder, write_part
from orchestrator.report.probe_analysis import form_notes
from orchestrator.selection.from_samples import select_samples
from orchestrator.selection.stored import select_for
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from policies import PolicyError, get_policy
from tasks import get_task

STRICT = {"rule": "strict:boxed", "other_rule": "lenient:hash"}
# Prompt -> outcome of each sample, and under the other reading.
POOL = {
    "all hash": [("unparsed", "correct")] * 3 + [("unparsed", "wrong")],
    "cut": [("truncated", "truncated")] * 3 + [("correct", "correct")],
    "hard": [("wrong", "wrong")] * 3 + [("unparsed", "unparsed")],
    "misread": [("wrong", "correct")] * 2 + [("wrong", "wrong")] * 2,
    "never but once": [("wrong", "wrong")] * 3 + [("wrong", "correct")],
    "prose": [("unparsed", "unparsed")] * 2 + [("wrong", "wrong")] + [("correct", "correct")],
    "solved": [("correct", "wrong")] * 4,
    "mostly solved": [("correct", "correct")] * 3 + [("unparsed", "unparsed")],
}
EXPECTED = {  # form_failures, other_form, and the reason if it fails by form
    "all hash": (4, 3, "other form"),
    "cut": (3, 0, "truncated"),
    "hard": (1, 0, ""),
    "misread": (2, 2, "other form"),
    "never but once": (1, 1, "other form"),
    "prose": (2, 0, "unparsed"),
    "solved": (0, 0, ""),
    "mostly solved": (1, 0, ""),
}


def samples(pool: dict[str, list[tuple[str, str]]] = POOL, **fields: object) -> pa.Table:
    rows = [
        sample_row(name, number, outcome=outcome, other_outcome=other, **STRICT | fields)
        for name, outcomes in pool.items()
        for number, (outcome, other) in enumerate(outcomes)
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def test_what_counts_as_a_failure_by_form() -> None:
    table = difficulty(samples())
    columns = (table[name].to_pylist() for name in ("prompt_id", "form_failures", "other_form"))
    for name, by_form, other in zip(*columns, strict=True):
        reason = EXPECTED[name][2]
        assert (by_form, other) == EXPECTED[name][:2], name
        numbers = form_counts(table.filter(pa.compute.equal(table["prompt_id"], name)))
        assert numbers == dict.fromkeys(FORMS, 0) | ({reason: 1} if reason else {}), name
    assert form_counts(table) == {"other form": 3, "unparsed": 1, "truncated": 1}
    assert form_note(table).startswith("5 of 8 prompts")
    assert "9 tokens" in form_note(table, "the limit of 9 tokens")
    assert form_note(table.filter(pa.compute.equal(table["prompt_id"], "hard"))) == ""
    assert form_remedies(table, 0.5) == [FORM, "raise the token limit"]
    assert form_remedies(table, 0.8) == []
    agreed = by_agreement(difficulty(samples(extracted="7")))  # which uses no gold
    assert agreed["other_form"].null_count == agreed["form_failures"].null_count == len(POOL)


def test_it_is_unknown_without_a_second_reading() -> None:
    one_reading = samples(other_rule="strict:boxed")  # as a marker of the user's own has it
    for table in (one_reading, samples().drop_columns("other_outcome")):
        rated = difficulty(table)
        assert rated["form_failures"].null_count == rated.num_rows
        assert form_counts(rated) is None and form_note(rated) == ""
        with pytest.raises(PolicyError, match="exclude: form"):
            get_policy("hard", exclude="form")(rated, 2, np.random.default_rng(0))
    assert form_counts(difficulty(samples()).select(["prompt_id", "pass_rate"])) is None


def test_policies_leave_out_prompts_that_fail_by_form() -> None:
    table = difficulty(samples())
    policy = get_policy("hard", exclude="form")
    rows = policy(table, 2, np.random.default_rng(0))
    assert table["prompt_id"].take(pa.array(rows)).to_pylist() == ["hard", "mostly solved"]
    assert policy.reads_answers and not policy.excludes_suspected


def test_the_texts_tell_for_a_function_as_marker() -> None:
    cases = [  # completion, gold, how it ended, and whether the gold stands in it
        (r"So \boxed{45}.", "45", "stop", True),
        ("#### 45", "45", "stop", True),
        ("The answer is 45.", "45.0", "stop", True),
        (r"So \boxed{46}.", "45", "stop", False),
        ("We add 45 and 3 and get", "45", "length", False),
        ("The answer is (B).", "B", "stop", True),
        (r"\boxed{\frac{1}{2}}", "1/2", "stop", True),
        (r"\boxed{New York}", "new york", "stop", True),
        ("def f(): pass", "assert f() is None", "stop", False),
        ("", "45", "stop", False),
    ]
    rows = [
        sample_row("p", n, completion=text, finish=finish)
        for n, (text, _, finish, _) in enumerate(cases)
    ]
    table = pa.Table.from_pylist(rows, schema=SAMPLES)
    golds = pa.array([gold for _, gold, *_ in cases])
    assert in_other_form(table, golds).tolist() == [stands for *_, stands in cases]
    correct = table.set_column(
        table.schema.get_field_index("outcome"), "outcome", [["correct"] * len(cases)]
    )
    assert not in_other_form(correct, golds).any()  # it did not fail
    assert not in_other_form(table, None).any()  # both readings are wrong


def test_a_probe_and_its_subsets_say_so(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    store, cell = Store(str(tmp_path / "runs")), plan.cells[0]
    pool, spec = plan.pool(cell.probe), cell.probe
    assert not reads_texts(pool.task) and not reads_texts(get_task("gsm8k"))
    rows = [
        sample_row(
            prompt.prompt_id,
            sample,
            outcome="unparsed" if number % 2 else "correct",
            other_outcome="correct",
            marker=spec.marker,
            score=float(number % 2 == 0),
            **STRICT,
        )
        for number, prompt in enumerate(pool.train)
        for sample in range(spec.settings.samples)
    ]
    write_part(store, spec.key, "train", pa.Table.from_pylist(rows, schema=SAMPLES))
    folder = ProbeFolder(store, spec, pool.train, pool.task)
    outcomes = folder.outcomes()
    assert outcomes.other_form is not None
    assert outcomes.other_form.sum() == len(rows) // 2
    answered, _ = folder.with_answers()
    assert answered.other_form is not None
    assert (answered.other_form == outcomes.other_form).all()
    tables = CellTables(outcomes, folder)
    subset = select_for(cell, tables.of(cell), None)
    store.write_table(subset, "subsets", f"{cell.subset_key}.parquet")
    assert cell.policy == "hard"
    [(policy, note)] = form_notes(plan, store, spec).items()
    assert policy == "hard" and note.startswith(f"{cell.size} of {cell.size} prompts"), note
    # From the samples in a file, as from the storage.
    file = tmp_path / "samples.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=SAMPLES), file)
    rule = PolicyEntry(policy="hard", options={})
    why = select_samples([file], rule, str(cell.size), 0, tmp_path / "subset.parquet")
    assert why["form_note"] in why["notes"] and why["form_note"].startswith(f"{cell.size} of")


def test_answers_without_a_gold_answer_are_no_evidence_of_form() -> None:
    """One unreadable sample of a prompt whose other answers are read, but not marked."""
    read = [("unlabelled", "unlabelled")] * 3 + [("unparsed", "unparsed")]
    unread = [("unlabelled", "unlabelled")] + [("unparsed", "unparsed")] * 3
    table = difficulty(samples({"read": read, "unread": unread}))
    assert table["form_failures"].to_pylist() == [1, 3]
    assert form_counts(table) == dict.fromkeys(FORMS, 0) | {"unparsed": 1}


def test_half_of_the_failures_are_not_most() -> None:
    assert unread_answers({"correct": 4, "wrong": 1, "unparsed": 1}) == ""
    assert unread_answers({"correct": 4, "wrong": 1, "unparsed": 2}).startswith("most failures")


def test_required_parsed_answers_need_no_gold_answer() -> None:
    """The policy takes the prompt whose answers were read, although none is marked."""
    read = [("unlabelled", "unlabelled")] * 3 + [("unparsed", "unparsed")]
    unread = [("unlabelled", "unlabelled")] + [("unparsed", "unparsed")] * 3
    table = difficulty(samples({"read": read, "unread": unread}))
    policy = get_policy("least_agreed", require="parsed")
    assert policy.required(table, "least_agreed").tolist() == [True, False]
