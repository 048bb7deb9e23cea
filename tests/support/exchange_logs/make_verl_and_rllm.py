"""Write a dump of rollouts with verl's own code, and a data set with rLLM's.

git clone https://github.com/volcengine/verl (b178a3c) and https://github.com/rllm-org/rllm
(9beb6e0), pip install pandas pyarrow, then: RLLM_HOME=OUT python make_verl_and_rllm.py VERL RLLM
OUT; verl_rollouts.jsonl of this folder is OUT/1.jsonl, and rllm.parquet and rllm_verl.parquet are
OUT/datasets/toy/train.parquet and train_verl.parquet.
"""

import ast
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

BOX = " Let's think step by step and output the final answer within \\boxed{}."
ROLLOUTS = [  # as tokenizers decode the chat templates of Qwen, Llama 3 and Gemma; and no template
    (f"system\nBe helpful.\nuser\nWhat is 2+2?{BOX}\nassistant\n", "So \\boxed{4}", "4", 1),
    (f"system\nBe helpful.\nuser\nWhat is 2+2?{BOX}\nassistant\n", "no", "4", 0),
    ("system\n\nToday: 1 May\n\nuser\n\nWhat is 3+4?assistant\n\n", "7", "7", 0),
    ("What is 5+5?", "\\boxed{10}", "10", 1),
    ("user\nWhat is 1+1?\nmodel\n", "\\boxed{2}", "2", 1),
    ("user\nOur\nuser names?\nassistant\n<think>\n\n</think>\n\n", "\\boxed{4}", "4", 1),
]
verl, rllm, out = sys.argv[1:]
tree = ast.parse((Path(verl) / "verl/trainer/ppo/ray_trainer.py").read_text())
functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
dump = next(function for function in functions if function.name == "_dump_generations")
names = {"os": os, "json": json}
exec(compile(ast.Module([dump], []), "verl", "exec"), names)
inputs, outputs, golds, scores = zip(*ROLLOUTS, strict=True)
extra = {"acc": [bool(score) for score in scores]}
names["_dump_generations"](
    SimpleNamespace(global_steps=1), inputs, outputs, golds, scores, extra, out
)

package = ModuleType("rllm")  # without the imports of its __init__
package.__path__ = [str(Path(rllm) / "rllm")]
sys.modules["rllm"] = package
from rllm.data.dataset import DatasetRegistry  # noqa: E402
from rllm.data.transforms import gsm8k_transform  # noqa: E402

sums = [(2, 2), (3, 4)]
rows = [{"question": f"{a}+{b}?", "answer": f"So\n#### {a + b}"} for a, b in sums]
DatasetRegistry.register_dataset("toy", [gsm8k_transform(row) for row in rows], "train")
