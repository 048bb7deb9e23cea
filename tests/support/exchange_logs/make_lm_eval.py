"""Evaluate invented sums with lm-evaluation-harness 0.4.13 and a model that knows two answers.

pip install lm_eval==0.4.13, then: HF_HUB_OFFLINE=1 python make_lm_eval.py OUT; lm_eval_sums.jsonl
and lm_eval_choice.jsonl of this folder are samples_toy_sums_*.jsonl and samples_toy_choice_*.jsonl.
"""

import json
import sys
import tempfile
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

SUMS = [(2, 2), (3, 4), (5, 5)]
ANSWERS = {"2+2": ["It is #### 4", "\\boxed{4}"], "3+4": ["\\boxed{8}", "#### 7"]}
TOY_SUMS = r"""
task: toy_sums
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/sums.jsonl}}
output_type: generate_until
test_split: test
doc_to_text: "Q: {{question}}\nA:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\n\n"], do_sample: true}
repeats: 2
filter_list:
  - name: strict-match
    filter: [{function: regex, regex_pattern: "#### (-?[0-9]+)"}, {function: take_first}]
  - name: flexible-extract
    filter:
      - {function: regex, group_select: -1, regex_pattern: "(-?[0-9]+)"}
      - {function: take_first}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
TOY_CHOICE = r"""
task: toy_choice
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/choice.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: "Q: {{question}}\nA:"
doc_to_choice: "{{choices}}"
doc_to_target: label
"""


class TwoAnswers(LM):
    def __init__(self) -> None:
        super().__init__()
        self.calls = {}

    def generate_until(self, requests, disable_tqdm=False):
        replies = []
        for request in requests:
            sum_ = request.args[0].rpartition("What is ")[2].partition("?")[0]
            self.calls[sum_] = self.calls.get(sum_, -1) + 1
            replies.append(ANSWERS.get(sum_, ["no", "idea"])[self.calls[sum_] % 2])
        return replies

    def loglikelihood(self, requests, disable_tqdm=False):
        return [(-float(len(request.args[1])), False) for request in requests]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError


with tempfile.TemporaryDirectory() as folder:
    sums = [
        {"question": f"What is {a}+{b}?", "answer": f"{a}+{b} = {a + b}\n#### {a + b}"}
        for a, b in SUMS
    ]
    choice = [{"question": "Is 2 even?", "choices": ["yes", "no"], "label": 0}]
    for name, rows in (("sums", sums), ("choice", choice)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (Path(folder) / f"{name}.jsonl").write_text(text)
    for name, text in (("sums", TOY_SUMS), ("choice", TOY_CHOICE)):
        (Path(folder) / f"{name}.yaml").write_text(text.replace("FOLDER", folder))
    tracker = EvaluationTracker(output_path=sys.argv[1])
    results = simple_evaluate(
        TwoAnswers(),
        tasks=["toy_sums", "toy_choice"],
        num_fewshot=1,
        log_samples=True,
        task_manager=TaskManager(include_path=folder),
        evaluation_tracker=tracker,
    )
    samples_by_task = results["samples"]
    tracker.save_results_aggregated(results=results, samples=samples_by_task)
    for task, samples in samples_by_task.items():
        tracker.save_results_samples(task_name=task, samples=samples)
