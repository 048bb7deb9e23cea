"""Wrong variants of an experiments file, deterministic by seed, and the rule for what refuses them.

A variant changes either the text (bytes, lines, characters) or one value, key or block of the tree.
"""

import copy
import random
from collections.abc import Iterator
from typing import Any

import yaml
from paths import ROOT

SMALL = """\
storage: ./runs
models: {tiny: {embedded: tiny}}
datasets:
  small:
    task: shuffled_objects
    options: {train: 80, test: 20, objects: [3, 5], swaps: [2, 4], seed: 3, split: seed}
    prompt: {preset: paper, system: Be brief., few_shot: [{question: Q, answer: A}]}
  sums: {task: arithmetic, options: {train: 80, test: 20, steps: [1, 2], largest: 50, seed: 1}}
  mine:
    task: file
    options: {path: questions.jsonl, test_share: 0.3, question: q, answer: a, marker: number}
policies:
  near: {policy: band, options: {low: 0.2, high: 0.8}}
  mix: {policy: mixture, options: {shares: {hard: 0.5, random: 0.5}}}
  tier: {policy: tiers, options: {levels: [3, 5]}}
experiments:
  sums:
    grid: {model: [tiny], dataset: [sums, mine], policy: [mix, learnable], probe_seed: [1, 2]}
    budget: 8
    match_sizes: true
    grpo: {max_steps: 4, num_generations: 8, beta: 0.1, generation_kwargs: {min_new_tokens: 1}}
    evaluate: {every: 2}
  small:
    about: A small sweep.
    grid: {model: [tiny], dataset: [small], policy: [hard, near, tier], seed: [0],
      budget: [16, 24], grpo.beta: [0, 0.1], evaluate.ood: [[], [arithmetic]], lora.r: [8]}
    budget: 16
    probe: {samples: 4, temperature: 1.0, stop: ['Q:'], engine: transformers}
    grpo: {max_steps: 4, num_generations: 4, per_device_train_batch_size: 8, loss_type: grpo}
    lora: {r: 8, target_modules: [q_proj, v_proj]}
    evaluate: {every: 2, samples: 4, pass_at: [2, 4], ood: [arithmetic], ood_samples: 2}
    resources: {cpus: 1, gpus: 0.5}
    claims: [hard > near on small by 1, hard > base at update 2, r2 > 0.5, hard > near in tier 3,
      'budget=16 > budget=24 for hard, grpo.beta=0 learnable']
    max_hours: 3
"""
# Text of a value as YAML; the mutated place is written as flow YAML.
VALUES = (
    *("true", "no", "0", "1", "-1", "3", "1.5", "-0.0", "1e400", ".nan", ".inf", "-.inf", "0x10"),
    *("null", "''", "' '", "x", "ünïcødé", "'\U0001f600'", "'1'", "'true'", "2001-01-01", "1:30"),
    *("2001-01-01 10:00:00", '"\\0"', '"\\e[31m"', '"\\ud800"', '"a\\nb"', "[]", "{}", "[[]]"),
    *("[1]", "[x]", "{x: 1}", "{1: 2}", "{null: 1}", "{[a]: 1}", "{? {a: b} : c}", "[null]"),
    *("!!binary aGk=", "!!set {a}", "!!python/name:os.system", "!own x", "!!int x", "!!float x"),
    *("*missing", "&a [*a]", "&a {x: *a}", "{<<: 3}", "{<<: [1]}", "{a: 1, a: 2}", "~", "=", "<<"),
    *("99999999999999999999", "9" * 500, "-" + "9" * 500, "1e308", "5e-324", "x" * 3_000, "'../x'"),
    *("s3://", "'os:sep'", "'nowhere_at_all:x'", "':'", "'a:b:c'", "../../etc/passwd", "/dev/null"),
    *("[" * 60 + "]" * 60, "[" * 300 + "]" * 300, "{a: " * 120 + "1" + "}" * 120, "@x", "`x`"),
    *("%x", "a: b", "- a", "[a", "{a: b", "'a", '"a', "a]", '"\\q"', "!", "!!", "&", "*", "|", ">"),
    "? a",
)
KEYS = (
    "",
    "x",
    "1",
    "true",
    "null",
    "ünï",
    '"\\ud800"',
    "a b",
    "é" * 100,
    "__class__",
    "<<",
    "2.5",
)
CHARACTERS = "\t\0\x07\x1b\x85\u2028\ufeff\ud7ff:#-[]{}&*!|>'\"%@`,? \n"
QUESTIONS = "".join(f'{{"q": "What is {n} + 1?", "a": "{n + 1}"}}\n' for n in range(60))
PLACE = "MUTATED_PLACE"


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def variants(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` variants, each with a description of the change."""
    rng = random.Random(seed)
    shipped = (ROOT / "experiments.yaml").read_text("utf-8")
    trees = [yaml.safe_load(SMALL), *[yaml.safe_load(shipped)] * 2]
    for number in range(count):
        if number % 3 == 0:
            yield _changed_text(rng, rng.choice([SMALL, shipped]))
        else:
            yield _changed_tree(rng, copy.deepcopy(rng.choice(trees)))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        yield (*path, key)
        yield from _paths(child, (*path, key))


def _changed_tree(rng: random.Random, tree: Any) -> tuple[str, bytes]:
    path = rng.choice(list(_paths(tree)))
    *above, key = path
    parent = tree
    for part in above:
        parent = parent[part]
    kind = rng.choice(["value"] * 6 + ["delete", "rename", "extra", "wrap", "duplicate"])
    raw = rng.choice(VALUES)
    if kind == "delete":
        del parent[key]
    elif kind == "value":
        parent[key] = PLACE
    elif kind == "wrap":
        parent[key] = rng.choice([[parent[key]], {"x": parent[key]}, [parent[key]] * 3])
    elif isinstance(parent, list):
        kind, raw = "extra", rng.choice(VALUES)
        parent.insert(key, PLACE)
    elif kind == "extra":
        parent[PLACE] = 1
        raw = rng.choice(KEYS)
    else:  # rename or duplicate, at the same place
        raw = rng.choice([*KEYS, _misspelt(rng, str(key))]) if kind == "rename" else str(key)
        items = list(parent.items())
        parent.clear()
        for name, value in items:
            if name != key or kind == "duplicate":
                parent[name] = value
            if name == key:
                parent[PLACE] = value
    text = yaml.dump(tree, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=10_000)
    data = text.replace(PLACE, raw, 1).encode("utf-8", "surrogatepass")
    return f"{kind} {'.'.join(map(str, path))} {raw[:40]}", data


def _misspelt(rng: random.Random, name: str) -> str:
    place = rng.randrange(len(name))
    return name[:place] + name[place + 1 :] or "x"


def _changed_text(rng: random.Random, text: str) -> tuple[str, bytes]:
    kind = rng.choice(
        ["cut", "flip", "insert", "tab", "indent", "drop line", "swap", "erase", "repeat", "bytes"]
    )
    place = rng.randrange(len(text))
    lines = text.split("\n")
    number = rng.randrange(len(lines) - 1)
    if kind == "cut":
        text = text[:place]
    elif kind == "flip":
        data = bytearray(text.encode())
        data[place % len(data)] ^= 1 << rng.randrange(8)
        return f"flip {place}", bytes(data)
    elif kind == "bytes":
        data = bytearray(text.encode())
        junk = rng.choice([b"\xff\xfe", b"\xed\xa0\x80", b"\0" * 4, b"PAR1", b"\x80"])
        data[place % len(data) : place % len(data)] = junk
        return f"bytes {place} {junk!r}", bytes(data)
    elif kind == "insert":
        text = text[:place] + rng.choice(CHARACTERS) + text[place:]
    elif kind == "erase":
        marks = [i for i, c in enumerate(text) if c in ":[]{},'\"-#&*"]
        place = rng.choice(marks)
        text = text[:place] + text[place + 1 :]
    else:
        if kind == "tab":
            lines[number] = "\t" + lines[number].lstrip()
        elif kind == "indent":
            lines[number] = " " * rng.randrange(9) + lines[number].lstrip()
        elif kind == "drop line":
            del lines[number]
        elif kind == "repeat":
            lines.insert(number, lines[number])
        else:
            lines[number], lines[number + 1] = lines[number + 1], lines[number]
        text, place = "\n".join(lines), number + 1
    return f"{kind} {place}", text.encode("utf-8", "surrogatepass")
