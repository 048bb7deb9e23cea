"""What choosing by another model's rates costs: lines and a table for a terminal, and a page."""

from orchestrator.evaluation.two_models import TwoModels
from orchestrator.plugins.counts import counted
from orchestrator.report.content import NONE, Page, Paragraph, Section, Table, one_line
from orchestrator.report.layout import wrapped
from orchestrator.report.sections.replay import shares_text
from orchestrator.report.terminal import as_text, indented

LIMITS = (
    "Live groups are expected by the estimator of probes, before any training. Nothing is said "
    "about accuracy. Intervals (95 %) are of other prompts of this kind, not of other models."
)


def model_lines(compared: TwoModels) -> list[str]:
    """Both models, and how alike their orders are."""
    ranking = compared.ranking
    low, high = ranking.correlation_interval
    shared_low, shared_high = (100 * each for each in ranking.shared_interval)
    return [
        f"{counted(len(compared.prompt_ids), 'prompt')} that both have, "
        f"choices of {compared.budget:,}",
        f"rank correlation {ranking.correlation:.2f} [{low:.2f}, {high:.2f}]",
        f"hardest tenth shared: {100 * ranking.shared:.0f} % [{shared_low:.0f}, "
        f"{shared_high:.0f}]; with itself under other ties: "
        f"{100 * ranking.own[0]:.0f} % and {100 * ranking.own[1]:.0f} %",
    ]


def exchange_table(compared: TwoModels) -> Table:
    """Each policy for each model, by its own rates and by the other's."""
    body = [
        (
            each.policy,
            one_line(each.model),
            *map(shares_text, (each.own, each.other)),
            f"{100 * each.random:.0f}",
            shares_text(each.cost),
            NONE if each.kept != each.kept else f"{100 * each.kept:.0f}",
            shares_text(each.shared),
        )
        for each in compared.exchanges
    ]
    head = (
        *("policy", "trained model", "by own rates %", "by the other's %", "random %"),
        *("cost, points", "lead kept %", "shared %"),
    )
    caption = (
        "Live groups that are expected of the trained model, by its own rates and by the other "
        "model's. Cost: their difference. Lead kept: of the difference between the own choice and "
        "random prompts. Shared: of the prompts of both choices."
    )
    return Table("Choosing by another model", head, body, caption)


def models_page(compared: TwoModels) -> Page:
    """The page."""
    blocks = (
        *map(Paragraph, model_lines(compared)),
        exchange_table(compared),
        Paragraph(LIMITS, "note"),
    )
    names = " and ".join(one_line(each.model) for each in compared.models)
    return Page(
        "Difficulty of two models",
        "What choosing prompts by another model's pass rates costs in live groups.",
        f"{names}.",
        (Section("models", "Two models", blocks),),
    )


def terminal_models(compared: TwoModels, width: int | None = None) -> str:
    """The same for a terminal."""
    title = wrapped(" and ".join(one_line(each.model) for each in compared.models), width)
    lines = "\n".join([title, *indented(model_lines(compared), width)])
    return "\n\n".join([lines, as_text(exchange_table(compared), width), wrapped(LIMITS, width)])
