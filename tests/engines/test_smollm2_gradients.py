"""An update of SmolLM2-135M here and in plain TRL, from the same rollouts: the same gradients.

Beside the engines, because `make test-engines` installs the model.
"""

from pathlib import Path
from typing import Any

from gradients import as_trained, difference, micro_batches, trl_gradient
from grpo import (  # noqa: F401 (fixtures)
    LIVE,
    generation,
    gradient,
    marks_in_this_process,
    one_thread,
    trainer_of,
)

from orchestrator.sampling.model import ModelSource
from orchestrator.training.trl_internals import LiveGroupsTrainer

# Of the gradient's norm, in float32. 1.2e-5 was seen; five columns of padding move TRL's own
# gradient by up to 5e-5 on the embedded model, which has 4 layers where this one has 30.
ROUNDING = 5e-5


def test_the_gradient_is_that_of_trl(smollm2: ModelSource, tmp_path: Path) -> None:
    grpo: Any = {"max_completion_length": 6, "beta": 0.0, "loss_type": "dapo"}
    trainer, _ = trainer_of(tmp_path, ["wrong", LIVE], False, model=smollm2, **grpo)
    batches = micro_batches(generation(trainer), 2)
    ours = as_trained(trainer, batches)
    assert sum(int(batch["kept"].sum()) for batch in ours) == 4
    of_ours = gradient(trainer, ours, LiveGroupsTrainer._compute_loss)
    assert trainer.why_padded == "", "prompts are shared"
    assert difference(of_ours, trl_gradient(trainer, batches)) < ROUNDING
