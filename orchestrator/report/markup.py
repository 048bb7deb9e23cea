"""The pieces of the page: its style, tables and figures. All text is escaped here."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from orchestrator.report.tables import Table

LONG = 24  # letters of a name that may be broken into lines
MANY = 24  # rows of a table that is folded

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --card: #f6f7f9; --rule: #d5d9de;
        --dim: #59636e; --accent: #0067a6; --shade: #0003; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --paper: #15181c; --card: #1e2329; --rule: #3a4048; --dim: #9aa4af;
          --accent: #6cb8ec; --shade: #fff3; }
  figure svg { filter: brightness(1.15); }
}
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: break-word; }
h1 { margin: 0; line-height: 1.2; } h2 { margin: 3rem 0 .5rem; line-height: 1.25; }
h3 { margin: 1.5rem 0 .25rem; font-size: 1.05rem; }
p { margin: .5rem 0; max-width: 44rem; }
.about, .note, figcaption { color: var(--dim); } .note, figcaption { font-size: .9rem; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0; font-size: .9rem; }
a { color: var(--accent); }
.card { background: var(--card); border-radius: 10px; padding: .25rem 1.1rem 1rem; margin: 1rem 0; }
ul { margin: .5rem 0; padding: 0; list-style: none; }
li { padding: .4rem 0 .4rem 1.6rem; text-indent: -1.6rem; border-top: 1px solid var(--rule); }
li:first-child { border: 0; }
li b { display: inline-block; width: 1.6rem; text-indent: 0; color: var(--accent); }
li.open { color: var(--dim); } li.open b { color: var(--dim); }
li strong { font-weight: 600; }
/* A shade at the side to which a table goes on; at the end, what scrolls along covers it. */
.scroll { overflow-x: auto; margin: .75rem 0; background:
  linear-gradient(to right, var(--paper) 1.5rem, transparent) local 0 / 2.5rem 100% no-repeat,
  linear-gradient(to left, var(--paper) 1.5rem, transparent) local 100% / 2.5rem 100% no-repeat,
  linear-gradient(to right, var(--shade), transparent) scroll 0 / .8rem 100% no-repeat,
  linear-gradient(to left, var(--shade), transparent) scroll 100% / .8rem 100% no-repeat; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap;
        font-size: .92rem; }
th, td { text-align: left; padding: .35rem 1rem .35rem 0; border-bottom: 1px solid var(--rule);
         vertical-align: top; }
td small { color: var(--dim); font-size: .9em; display: block; }
th { color: var(--dim); font-weight: 600; vertical-align: bottom; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr));
        gap: 1rem; }
figure { margin: .75rem 0; max-width: 38rem; min-width: 0; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { margin-top: .25rem; }
td.long, th.long { white-space: normal; min-width: 11rem; }
@media (max-width: 40rem) { td:first-child { white-space: normal; min-width: 6.5rem; } }
code, pre { font-size: .85rem; overflow-wrap: anywhere; }
pre { background: var(--card); border-radius: 8px; padding: .75rem; overflow-x: auto; }
summary { cursor: pointer; margin: 1.5rem 0 .25rem; } details h3 { display: none; }
"""


def table(found: Table) -> str:
    """A table in a box that scrolls, so that the page never does sideways."""
    head = "".join(
        f'<th scope="col"{" class=long" * (len(name) > LONG)}>{escape(name)}</th>'
        for name in found.head
    )
    body = "".join(map(_lines, _alike(found.body)))
    title = f"<h3>{escape(found.title)}</h3>" if found.title else ""
    note = f'<p class="note">{escape(found.note)}</p>' if found.note else ""
    # Focusable, so that a keyboard can scroll it.
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(found.title)}">'
    whole = f"{title}{box}<table><tr>{head}</tr>{body}</table></div>{note}"
    if len(found.body) <= MANY:
        return whole
    return folded(f"{found.title}: {len(found.body):,} rows".removeprefix(": "), whole)


def _alike(body: Sequence[Sequence[str]]) -> list[list[Sequence[str]]]:
    """Lines that begin alike, together."""
    return [list(lines) for _, lines in groupby(body, key=lambda line: line[0])]


def _lines(alike: Sequence[Sequence[str]]) -> str:
    """Table rows whose first cell is seen once; programs that read the page find it in each."""
    span = f' rowspan="{len(alike)}"' if len(alike) > 1 else ""
    kinds = [span, *[" hidden"] * (len(alike) - 1)]
    rows = [
        _entry(line[0], kind) + "".join(map(_entry, line[1:]))
        for line, kind in zip(alike, kinds, strict=True)
    ]
    return "".join(f"<tr>{row}</tr>" for row in rows)


def _entry(text: str, more: str = "") -> str:
    """A cell: long names in lines, brackets below the rest, so that columns are narrow."""
    rest, space, bracket = text.partition(" (")
    if not space:
        rest, space, bracket = text.partition(" [")
    kind = ' class="long"' if len(rest) > LONG else ""
    below = f"<small>{escape(space + bracket)}</small>" if space else ""
    return f"<td{kind}{more}>{escape(rest).replace('/', '/<wbr>')}{below}</td>"


def figure(svg: str, caption: str) -> str:
    """A figure with its caption, which is also what a screen reader says."""
    label = f'<svg role="img" aria-label="{escape(caption)}"'
    return (
        f"<figure>{svg.replace('<svg', label, 1)}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def pair(figures: Sequence[str]) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pair">{"".join(figures)}</div>'


def folded(title: str, content: str) -> str:
    """What is there for those who look for it."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def section(name: str, title: str, content: str) -> str:
    """A headed part of the page that its table of contents can point to."""
    return f'<section id="{escape(name)}"><h2>{escape(title)}</h2>{content}</section>'


def paragraph(text: str, kind: str = "") -> str:
    """One paragraph of plain text."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"
