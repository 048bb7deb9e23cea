"""docs/examples/whole_idea.py agrees with a cell, on an embedded model that subtracts badly."""

from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import yaml
from sweeps import experiments, plan_of, run, store_of
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from whole_idea_cases import idea  # noqa: F401 (fixtures)

from orchestrator.embedded import embedded_path
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.training.cell_folder import CellFolder
from tasks import OUTCOMES

MODEL, UPDATES, TOKENS = "tiny-plus-minus", 24, 64


def declared(folder: Path) -> Path:
    """A sweep of one cell: the hardest 8 of 80 prompts, of which 8 have subtractions."""
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard"], "seed": [0]}
    file = experiments(
        folder,
        grid=grid,
        budget=8,
        probe={"samples": 4, "max_completion_length": TOKENS},
        grpo={
            "max_steps": UPDATES,
            "num_generations": 8,
            "per_device_train_batch_size": 64,
            "max_completion_length": TOKENS,
            "learning_rate": 1e-3,
            "save_steps": UPDATES,
        },
        lora={"r": 16, "lora_alpha": 32},
        evaluate={"every": UPDATES, "samples": 4},
    )
    content = yaml.safe_load(file.read_text())
    content["models"]["tiny"] = {"embedded": MODEL}
    content["datasets"]["few"] = {"task": "plus_minus", "options": {"train": 80, "test": 40}}
    file.write_text(yaml.safe_dump(content))
    return file


def test_one_page_and_a_cell_agree(idea: ModuleType, tmp_path: Path) -> None:
    file = declared(tmp_path)
    run(file)
    store, plan = store_of(file), plan_of(file)
    [cell], pool = plan.cells, plan.pools["few"]
    outcomes = ProbeFolder(store, cell.probe, pool.train, pool.task).read().outcomes()
    of_cell = (outcomes.codes == OUTCOMES.index("correct")).mean(axis=1)
    result = CellFolder(store, cell.cell_id).result()
    assert result

    def lines(prompts: object) -> list[dict[str, str]]:
        return [
            {"question": pool.task.messages(p.question)[0]["content"], "answer": p.answer}
            for p in prompts
        ]

    torch.set_num_threads(1)
    path = str(embedded_path(MODEL))
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    set_seed(0)
    base = AutoModelForCausalLM.from_pretrained(path).eval()
    train, test = lines(pool.train), lines(pool.test)
    pass_rates = idea.sample(base, tokenizer, train, 4, TOKENS).mean(axis=1)
    rare = {i for i, prompt in enumerate(pool.train) if prompt.tier != "0"}
    subset = idea.select(pass_rates, "hard", 8, seed=0)
    assert abs(pass_rates.mean() - of_cell.mean()) < 0.05
    assert len(rare & set(subset.tolist())) >= 6
    assert abs(pass_rates[subset].mean() - np.sort(of_cell)[:8].mean()) < 0.2

    model, live = idea.train(path, tokenizer, [train[i] for i in subset], 0, UPDATES, TOKENS, 1e-3)
    accuracy = idea.sample(model, tokenizer, test, 4, TOKENS).mean()
    before, after = result.accuracy_base, result.accuracy_final
    assert accuracy > before + 0.1 and after > before + 0.1
    assert abs(accuracy - after) < 0.2
    assert abs(live - result.learnable_pct) < 25
