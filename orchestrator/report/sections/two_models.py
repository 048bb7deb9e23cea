"""What choosing by another model's rates costs: lines and a table for a terminal, and a page."""

from orchestrator.evaluation.two_models import TwoModels
from orchestrator.plugins.counts import counted
from orchestrator.report.content import Page, Paragraph, Section, Table, one_line
from orchestrator.report.layout import wrapped
from orchestrator.report.sections.replay import decimals, number_text, reasons_lines, shares_text
from orchestrator.report.terminal import as_text, indented
from orchestrator.stats.resampled import Estimate

LIMITS = (
    "Live groups are estimated as in probes, before any training. Accuracy is "
    "not measured. Intervals (95 %) cover other prompts of this kind, not other models."
)


def model_lines(compared: TwoModels) -> list[str]:
    """Both models, and how alike their orders are."""
    ranking = compared.ranking
    correlation = Estimate(ranking.correlation, *ranking.correlation_interval)
    shared = Estimate(ranking.shared, *ranking.shared_interval)
    return [
        f"{counted(len(compared.prompt_ids), 'prompt')} that both have, "
        f"choices of {compared.budget:,}",
        f"rank correlation {decimals(correlation, 2)}",
        f"hardest tenth shared, %: {shares_text(shared)}; with itself under different ties: "
        f"{number_text(ranking.own[0])} and {number_text(ranking.own[1])}",
    ]


def exchange_table(compared: TwoModels) -> Table:
    """Each policy for each model, by its own rates and by the other's."""
    body = [
        (
            each.policy,
            one_line(each.model),
            *map(shares_text, (each.own, each.other)),
            number_text(each.random),
            shares_text(each.cost),
            number_text(each.kept),
            shares_text(each.shared),
        )
        for each in compared.exchanges
    ]
    head = (
        *("policy", "trained model", "by own rates %", "by the other's %", "random %"),
        *("cost, points", "lead kept %", "shared %"),
    )
    caption = (
        "Expected live groups of the trained model, if prompts are chosen by its own rates or by "
        "the other model's. Cost: their difference. Lead kept: share of the lead of the own "
        "choice over random prompts. Shared: prompts in both choices."
    )
    return Table("Choosing by another model", head, body, caption)


def models_page(compared: TwoModels) -> Page:
    """The page."""
    blocks = (
        *map(Paragraph, model_lines(compared)),
        exchange_table(compared),
        *map(Paragraph, reasons_lines("not compared", compared.refused)),
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
    parts = [lines, as_text(exchange_table(compared), width)]
    if reasons := reasons_lines("not compared", compared.refused):
        parts.append("\n".join(indented(reasons, width)))
    return "\n\n".join([*parts, wrapped(LIMITS, width)])
