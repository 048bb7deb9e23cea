"""`import decile` in a notebook, cell by cell. It needs a file pool.jsonl of questions and answers.

`mine.yaml` in the later cells is an experiments file with an experiment named `compare`.
"""

# %% How hard is each prompt? The columns, the marker and the test questions are chosen as by init.
import decile

probe = decile.probe(data="pool.jsonl", model="tiny", samples=4)
print(probe.summary())
probe

# %% A second call draws only what is missing. With a storage, commands read the same samples.
probe = decile.probe(data="pool.jsonl", model="tiny", samples=6, storage="./runs")
probe.table.column_names
probe.to_pandas().sort_values("pass_rate").head()
probe.samples.select(["prompt_id", "sample", "outcome", "completion"]).slice(0, 3)
probe.prompts[0].question
probe.plot()
probe.plot("agreement")
probe.plot("outcomes").savefig("outcomes.png")

# %% Rows in place of a file: dicts, a DataFrame, a datasets.Dataset or a pyarrow Table. Every
# option of `task: file`, of a data set, of its prompt and of the block `probe` is an argument.
rows = [
    {"question": f"What is {i} + {i % 7}?", "answer": i + i % 7, "topic": "ab"[i % 2], "id": i}
    for i in range(40)
]
sums = decile.probe(
    rows,
    model="tiny",
    samples=2,
    max_completion_length=16,
    source="topic",
    keep=["id"],
    test_share=0.25,
    prompt="bare",
    system="Answer with a number.",
    marking="strict",
)
sums.table.select(["source", "id", "file", "line", "pass_rate"]).slice(0, 3)

# %% Choose prompts for a trainer: a share of the pool, or a number.
subset = probe.select("hard", 0.2, seed=0)
subset.reason["ties"]
subset.to_dataset()
subset.export("verl", "train.parquet", card=True)
band = probe.select("band", 8, low=0.2, high=0.8)
least_agreed = probe.select("hard", 0.2, difficulty="agreement")
other = decile.probe(data="pool.jsonl", model="tiny-plus-minus", samples=2)
probe.select("hard", 0.2, difficulty=other).table["why"][0]

# %% An experiment of a file: run() does what is not finished, as decile run.
experiment = decile.load("mine.yaml", "compare")
experiment.cells[0].name
probe = experiment.probe()
results = experiment.run()

# %% What the storage holds of finished cells.
results = decile.load("mine.yaml", "compare").results()
results.to_pandas()
results.churn.to_pandas()
results.gain_parts.to_pandas()
comparisons = results.compare()
print(comparisons)
comparisons.table.select(["measure", "a", "b", "effect", "low", "high", "p_holm", "verdict"])
results.plot()
results.plot().savefig("accuracy.png")
list(results.page.figures)
results.show("gains")

# %% What is wrong with an argument is one sentence, before anything is sampled.
try:
    probe.select("hardest", 0.2)
except decile.UserError as error:
    print(error)
