"""What the probes of a plan are called, and how many samples they lack, in words."""

from collections import Counter
from collections.abc import Callable, Sequence

from orchestrator.pipeline.run import probe_id
from orchestrator.planning.cells import ProbeSpec
from orchestrator.plugins.counts import counted


def samples_text(total: int, missing: int, *, at_most: bool, shared: int = 0) -> str:
    """How many samples of a probe are stored and still to draw; `at_most`: it may need fewer.

    `shared`: the samples that another probe draws.
    """
    up_to = "up to " if at_most else ""
    if shared:
        stored = f", {total - missing - shared:,} stored" if total > missing + shared else ""
        of_another = f"{shared:,} of {counted(total, 'sample')} shared with another probe"
        return f"{of_another}{stored}, {missing:,} to draw"
    if not missing:
        return f"all {'needed ' if at_most else f'{total:,} '}samples stored"
    if missing == total:
        return f"{up_to}{counted(total, 'sample')} to draw"
    return f"{total - missing:,} of {counted(total, 'sample')} stored, {up_to}{missing:,} to draw"


def probe_labels(specs: Sequence[ProbeSpec]) -> dict[str, str]:
    """Display names by `probe_id`; settings are named only where probes differ in them."""
    labels = {probe_id(s): f"{s.model.title}/{s.dataset.variant_key} {s.split}" for s in specs}
    qualifiers: tuple[Callable[[ProbeSpec], str], ...] = (
        lambda spec: "" if spec.settings.temperature else "greedy",
        lambda spec: f"seed {spec.settings.seed}",
        lambda spec: f"{counted(spec.settings.samples, 'sample')}",
        lambda spec: spec.key[:8],
    )
    for qualifier in qualifiers:
        uses = Counter(labels.values())
        for spec in specs:
            label, detail = labels[probe_id(spec)], qualifier(spec)
            if uses[label] > 1 and detail:
                labels[probe_id(spec)] = f"{label}, {detail}"
    return labels
