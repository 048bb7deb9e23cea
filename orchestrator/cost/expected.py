"""What a plan still has to do, in seconds: measured where cells have finished, else estimated.

Reads the store; runs nothing. How long answers are comes from the probe as far as it has been
drawn, how fast a model is from finished cells of it in this storage, else from `throughput`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.resources import probe_share
from orchestrator.config.experiment import Resources
from orchestrator.cost.forecast import evaluations_until
from orchestrator.cost.memory import shape_of
from orchestrator.cost.throughput import (
    CHARACTERS_PER_TOKEN,
    MACHINES,
    TEMPLATE_TOKENS,
    Cost,
    Lengths,
    Machine,
    Scale,
    Size,
    Work,
    assumed_lengths,
    cost,
    cpu,
    rounds,
    sampling,
    scale_of,
    size_of,
)
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.probing.probe import ROWS_PER_PART
from orchestrator.probing.probes import pending_samples
from orchestrator.probing.sample_store import load_samples
from orchestrator.sampling.model import ModelSource
from orchestrator.selection.subsets import read_subset
from orchestrator.storage.store import Store
from tasks import Prompt

GPU = "h100"  # where nothing says which


class Expected(NamedTuple):
    """Costs of cells by id, seconds of probes by `probe_id`, and by model the figures' source.

    A model of which nothing is known is in `sources` only.
    """

    cells: dict[str, Cost]
    probes: dict[str, float]
    sources: dict[str, str]

    def seconds(self, cell: Cell) -> float:
        """Of a cell; 0 where its model is not known."""
        return self.cells[cell.cell_id].seconds if cell.cell_id in self.cells else 0.0


def expect(
    plan: Plan, store: Store, cells: Iterable[Cell], cluster: Mapping[str, float], gpu: str = GPU
) -> Expected:
    """The cost of these cells and of every probe that is owed, on a cluster's machines."""
    reader = _Reader(plan, store, gpu)
    costs = {cell.cell_id: reader.cell(cell) for cell in cells}
    probes = {probe_id(spec): reader.probe(spec, cluster) for spec in plan.probes}
    return Expected(
        {cell_id: each for cell_id, each in costs.items() if each is not None},
        {probe: seconds for probe, seconds in probes.items() if seconds},
        {name: speed.source for name, speed in reader.speeds.items()},
    )


def probe_id(spec: ProbeSpec) -> str:
    """A probe's identity within a plan."""
    return f"{spec.key}/{spec.dataset.name}/{spec.split}/{spec.settings.samples}"


def probe_labels(specs: Sequence[ProbeSpec]) -> dict[str, str]:
    """Display names by `probe_id`; settings are named only where they tell probes apart."""
    labels = {probe_id(s): f"{s.model.name}/{s.dataset.name} {s.split}" for s in specs}
    qualifiers: tuple[Callable[[ProbeSpec], str], ...] = (
        lambda spec: "" if spec.settings.temperature else "greedy",
        lambda spec: f"probe seed {spec.settings.seed}",
        lambda spec: f"{spec.settings.samples} samples",
        lambda spec: spec.key[:8],
    )
    for qualifier in qualifiers:
        uses = Counter(labels.values())
        for spec in specs:
            label, detail = labels[probe_id(spec)], qualifier(spec)
            if uses[label] > 1 and detail:
                labels[probe_id(spec)] = f"{label}, {detail}"
    return labels


def kind_of(names: Iterable[str]) -> str | None:
    """The machine of the catalogue that one of these names means, such as a resource of Ray's."""
    return next((kind for name in names for kind in MACHINES if kind in name.lower()), None)


def machine_of(resources: Resources, gpu: str) -> Machine:
    """What one worker computes on; those that share a GPU share its speed."""
    return _part(MACHINES[gpu], resources.gpus) if resources.gpus else cpu(resources.cpus)


def _part(gpu: Machine, count: float) -> Machine:
    """A share of a GPU, or several that compute together."""
    return gpu._replace(bandwidth=gpu.bandwidth * count, flops=gpu.flops * count)


class Speed(NamedTuple):
    """How fast a model is here; no size where nothing is known."""

    size: Size | None
    scale: Scale
    source: str


# Cancels out where a model was measured: only ratios of the same arithmetic are used then.
ANY_SIZE = Size(4e9, 36, 8e9, 147_456.0)


def _size(model: ModelSource) -> Size | None:
    """The size of a model, where anything says it."""
    shape = shape_of(model)
    return size_of(shape, model.dtype, load_in_4bit=model.load_in_4bit) if shape else None


def speed_of(
    size: Size | None, pairs: Sequence[tuple[Cost, Cost]], resources: Resources, gpu: str
) -> Speed:
    """Measured from (catalogue, measured) pairs where there are any, else what the size says."""
    if pairs:
        cells = f"{len(pairs)} finished cell{'s' * (len(pairs) > 1)}"
        return Speed(size or ANY_SIZE, scale_of(pairs), f"measured: {cells} in this storage")
    if size is None:
        return Speed(None, Scale(), "not known before a first cell has run into this storage")
    millions, machine = size.parameters / 1e6, machine_of(resources, gpu)
    many = f"{millions / 1e3:.1f} billion" if millions >= 1e3 else f"{millions:.1f} million"
    said = f"{many} parameters on {machine.name}"
    return Speed(size, Scale(), f"catalogue: {said}, not measured here")


class _Reader:
    """What the store says of a plan; each probe is read once."""

    def __init__(self, plan: Plan, store: Store, gpu: str) -> None:
        self.plan, self.store, self.gpu = plan, store, gpu
        self._tokens: dict[tuple[str, str, str], pa.Table] = {}
        models = {cell.probe.model.name: cell.probe.model for cell in plan.cells}
        self.speeds = {name: self._speed(model) for name, model in models.items()}

    def _speed(self, model: ModelSource) -> Speed:
        """From finished cells of the plan, else of the store, else from the catalogue.

        Those of the plan are held against what would have been expected of them: what the estimate
        gets wrong of this dataset and these settings then cancels out.
        """
        mine = [cell for cell in self.plan.cells if cell.probe.model.name == model.name]
        size, pairs = _size(model), list[tuple[Cost, Cost]]()
        for cell in mine:
            result = self.store.read_json("cells", cell.cell_id, "result.json")
            if result is not None:
                pairs.append((self._said(cell, size or ANY_SIZE), _took(result)))
        if not pairs:
            pairs = _finished(self.store, model, size or ANY_SIZE, mine[0].resources, self.gpu)
        return speed_of(size, pairs, mine[0].resources, self.gpu)

    def _said(self, cell: Cell, size: Size) -> Cost:
        """What the catalogue says of a cell."""
        work = work_of(self.plan, cell, self._lengths(cell))
        return cost(work, size, machine_of(cell.resources, self.gpu))

    def cell(self, cell: Cell) -> Cost | None:
        """The cost of a cell."""
        speed = self.speeds[cell.probe.model.name]
        return speed.scale(self._said(cell, speed.size)) if speed.size else None

    def _lengths(self, cell: Cell) -> Lengths:
        """Of the cell's subset as the probe saw it, or of the pool while there is no subset."""
        rows, train = self._drawn(cell.probe), self.plan.pool(cell.probe).train
        subset = read_subset(self.store, cell)
        if subset is None:
            return _as_lengths(rows, train, cell.probe)
        chosen = subset["prompt_id"].combine_chunks()
        ids = set(chosen.to_pylist())
        mine = rows.filter(pc.is_in(rows["prompt_id"], value_set=chosen))
        return _as_lengths(mine, [p for p in train if p.prompt_id in ids], cell.probe)

    def _drawn(self, spec: ProbeSpec) -> pa.Table:
        """Tokens of every sample that a probe holds."""
        place = (spec.key, spec.dataset.name, spec.split)
        if place not in self._tokens:
            prompts = self.plan.pool(spec).prompts(spec.split)
            self._tokens[place] = load_samples(self.store, spec, prompts, ("tokens",))
        return self._tokens[place]

    def probe(self, spec: ProbeSpec, cluster: Mapping[str, float]) -> float | None:
        """Wall seconds of a probe's owed samples over its actors, each on a device of its own."""
        speed, samples = (
            self.speeds[spec.model.name],
            pending_samples(self.plan, self.store, spec).samples,
        )
        if speed.size is None or not samples:
            return None
        prompts = self.plan.pool(spec).prompts(spec.split)
        lengths = _as_lengths(self._drawn(spec), prompts, spec)
        share = probe_share(cluster, -(-samples // ROWS_PER_PART), spec.settings.gpus)
        machine = _part(MACHINES[self.gpu], share.gpus) if share.gpus else cpu(1)
        each, vllm = samples / share.actors, spec.settings.engine == "vllm"
        drawn = sampling(each, lengths.mean, lengths.prompt, 1, speed.size, machine, vllm=vllm)
        return machine.start_seconds * speed.scale.start + drawn * speed.scale.evaluation


def _as_lengths(rows: pa.Table, prompts: list[Prompt], spec: ProbeSpec) -> Lengths:
    characters = np.mean([len(p.question) for p in prompts]) if prompts else 0.0
    prompt = float(characters) / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS
    if not rows.num_rows:
        return assumed_lengths(prompt, spec.settings.max_completion_length)
    return Lengths(prompt, rows["tokens"].to_numpy().astype(float))


def _finished(
    store: Store, model: ModelSource, size: Size, resources: Resources, gpu: str
) -> list[tuple[Cost, Cost]]:
    """(catalogue, measured) of the model's finished cells; of those with equal resources if any."""
    alike: list[tuple[Cost, Cost]] = []
    others: list[tuple[Cost, Cost]] = []
    for cell_id in store.folders("cells"):
        result = store.read_json("cells", cell_id, "result.json")
        cell = store.read_json("cells", cell_id, "cell.json") if result else None
        if cell is None or cell["probe"]["model"]["identity"] != model.identity:
            continue
        had = Resources.model_validate(cell["resources"])
        said = cost(_done(cell["grpo"], had, result), size, machine_of(had, gpu))
        (alike if had == resources else others).append((said, _took(result)))
    return alike or others


def _took(result: Mapping[str, Any]) -> Cost:
    timing = result.get("timing", {})
    training, evaluation = result["ledger"]["seconds"], timing.get("evaluation_seconds", 0.0)
    return Cost(timing.get("start_seconds", 0.0), training, evaluation)


def _done(grpo: Mapping[str, Any], resources: Resources, result: Mapping[str, Any]) -> Work:
    """What a finished cell did, from its ledger and its own account of its time."""
    ledger, timing = result["ledger"], result.get("timing", {})
    made = rounds(grpo, resources.workers)
    steps = timing.get("decode_steps", 0.0) / max(1, made.generations)
    answers = timing.get("answers", 0) / resources.workers
    return Work(
        made.generations,
        made.rows,
        steps or grpo["max_completion_length"],
        ledger["prompt_tokens"] / max(1, ledger["rollouts"]),
        made.trained,
        made.scored,
        timing.get("evaluations", 0),
        answers,
        timing.get("answer_tokens", 0) / max(1, timing.get("answers", 0)),
        vllm=bool(grpo.get("use_vllm")),
    )


def work_of(plan: Plan, cell: Cell, lengths: Lengths) -> Work:
    """What a cell will do, if its completions are as long as the base model's."""
    made = rounds(cell.grpo, cell.resources.workers)
    limit = int(cell.grpo["max_completion_length"])
    clipped = lengths._replace(completions=np.minimum(lengths.completions, limit))
    times = evaluations_until(cell, cell.updates)
    return Work(
        made.generations,
        made.rows,
        clipped.longest(made.rows),
        lengths.prompt,
        made.trained,
        made.scored,
        times,
        _answers(plan, cell, times) / cell.resources.workers,
        lengths.mean,
        vllm=bool(cell.grpo.get("use_vllm")),
    )


def _answers(plan: Plan, cell: Cell, times: int) -> int:
    """Completions of all evaluations: the own test set each time, others at the end."""
    own = len(plan.pool(cell.baseline).test) * cell.baseline.settings.samples
    also = 0
    for asked in cell.also:
        each = len(plan.pool(asked.probe).test) * asked.probe.settings.samples
        also += each * (times if asked.greedy else 1)
    return times * own + also
