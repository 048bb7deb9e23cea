"""The idea of Decile in one file, with transformers, TRL, PEFT and NumPy alone.

    python docs/examples/whole_idea.py MODEL TRAIN.jsonl TEST.jsonl --policies hard easy

1. probe: the base model answers each training prompt K times; its share of right answers is the
   prompt's pass rate
2. select: each policy takes equally many prompts by their pass rates
3. train: GRPO with LoRA on each subset, once per seed
4. compare: the test accuracies, paired by question, with an interval over seeds and questions

Each line of the files has a `question` and an `answer`; the last \\boxed{...} is what is marked.
What the package adds is what a real sweep needs: samplers on many GPUs, runs that survive kills and
are never repeated, markers for other answers, and statistics for small numbers of seeds.
"""

import argparse
import re
import tempfile

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

POLICIES = ("hard", "middle", "easy", "random")
PROMPTS_AT_ONCE = 16
# Student's t: the half width of a 95 % interval in standard errors, by degrees of freedom.
T95 = (np.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def mark(text, answer):
    """1.0 if the last boxed answer is the reference answer, else 0.0."""
    boxed = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return float(bool(boxed) and boxed[-1].strip() == str(answer))


def chat(row):
    """A line of the file as the messages of a chat."""
    return [{"role": "user", "content": row["question"]}]


@torch.inference_mode()
def sample(model, tokenizer, rows, samples, max_tokens):
    """Scores [prompts, samples] of answers at temperature 1, without top-k or top-p."""
    scores = []
    for start in range(0, len(rows), PROMPTS_AT_ONCE):
        part = rows[start : start + PROMPTS_AT_ONCE]
        inputs = tokenizer.apply_chat_template(
            [chat(row) for row in part],
            add_generation_prompt=True,
            padding=True,
            return_dict=True,
            return_tensors="pt",
        )
        output = model.generate(
            **inputs.to(model.device),
            num_return_sequences=samples,
            max_new_tokens=max_tokens,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
        )
        completions = output[:, inputs["input_ids"].shape[1] :]  # [part × samples, tokens]
        texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
        for number, row in enumerate(part):
            own = texts[number * samples : (number + 1) * samples]
            scores.append([mark(text, row["answer"]) for text in own])
    return np.array(scores)


def select(pass_rates, policy, size, seed):
    """The positions of `size` prompts by their pass rates [prompts]. Ties are broken at random."""
    shuffled = np.random.default_rng(seed).permutation(len(pass_rates))
    keys = {
        "hard": pass_rates,
        "middle": np.abs(pass_rates - 0.5),
        "easy": -pass_rates,
        "random": np.zeros(len(pass_rates)),
    }
    order = np.argsort(keys[policy][shuffled], kind="stable")
    return shuffled[order][:size]


def train(model_name, tokenizer, rows, seed, updates, max_tokens, learning_rate):
    """GRPO with updates of 8 prompts × 8 completions: the model, and the live groups in %.

    A group is live if its rewards differ. Of others, all advantages are 0: nothing is learned.
    """
    set_seed(seed)

    def reward(completions, answer, **_):
        return [mark(c[0]["content"], a) for c, a in zip(completions, answer, strict=True)]

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            seed=seed,
            max_steps=updates,
            learning_rate=learning_rate,
            lr_scheduler_type="constant",
            loss_type="dr_grpo",
            scale_rewards="none",
            num_generations=8,
            per_device_train_batch_size=64,
            max_completion_length=max_tokens,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(model_name),
            processing_class=tokenizer,
            args=settings,
            reward_funcs=[reward],
            train_dataset=Dataset.from_list(
                [{"prompt": chat(row), "answer": str(row["answer"])} for row in rows]
            ),
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    dead = [log["frac_reward_zero_std"] for log in trainer.state.log_history if "reward" in log]
    return trainer.model.eval(), 100 * (1 - np.mean(dead))


def compare(one, other):
    """The difference of two accuracies in points, and half its 95 % interval.

    one, other: scores [seeds, questions]. Seeds and questions are both samples of many, so that the
    variances of the mean over either are added, each with its own t quantile (Banerjee 1960).
    """
    difference = 100 * (one - other)
    variance = 0.0
    for means in (difference.mean(axis=1), difference.mean(axis=0)):
        freedom = len(means) - 1
        t = T95[freedom] if freedom < len(T95) else 1.96 + 2.8 / freedom
        variance += t**2 * means.var(ddof=1) / len(means) if freedom else np.inf
    return difference.mean(), np.sqrt(variance)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a folder, or a name on the Hub")
    parser.add_argument("train", help="a JSONL file with question and answer")
    parser.add_argument("test", help="another one")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--budget", type=float, default=0.1, help="share of the prompts")
    parser.add_argument("--samples", type=int, default=8, help="answers per prompt of the probe")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    return parser.parse_args()


def main():
    """Probe once, then train and evaluate each policy with each seed; print what differs."""
    args = arguments()
    pool, test = (Dataset.from_json(path).to_list() for path in (args.train, args.test))
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    base = AutoModelForCausalLM.from_pretrained(args.model).eval()
    set_seed(0)
    pass_rates = sample(base, tokenizer, pool, args.samples, args.max_tokens).mean(axis=1)
    before = sample(base, tokenizer, test, 4, args.max_tokens).mean()
    print(f"base: pass rate {100 * pass_rates.mean():.1f} %, accuracy {100 * before:.1f} %")
    size, scores = max(1, round(args.budget * len(pool))), {}
    for policy in args.policies:
        for seed in args.seeds:
            subset = select(pass_rates, policy, size, seed)
            rows = [pool[position] for position in subset]
            model, live = train(
                args.model, tokenizer, rows, seed, args.updates, args.max_tokens, args.learning_rate
            )
            answers = sample(model, tokenizer, test, 4, args.max_tokens).mean(axis=1)
            scores.setdefault(policy, []).append(answers)
            print(
                f"{policy}, seed {seed}: pass rate {100 * pass_rates[subset].mean():.1f} %, "
                f"live groups {live:.1f} %, accuracy {100 * answers.mean():.1f} %",
                flush=True,
            )
    for number, one in enumerate(args.policies):
        for other in args.policies[number + 1 :]:
            points, half = compare(np.array(scores[one]), np.array(scores[other]))
            verdict = "differ" if abs(points) > half else "inconclusive"
            interval = f"[{points - half:+.1f}, {points + half:+.1f}]"
            print(f"{one} - {other}: {points:+.1f} points {interval} {verdict}")


if __name__ == "__main__":
    main()
