"""The next token of each row: drawn from the softmax of its logits, cut by top-k and top-p.

It uses inverse transform sampling with one uniform per row, for any vocabulary. Summing a whole
vocabulary in float64 costs several times as much as its softmax. The uniform therefore first
chooses a block of tokens by the blocks' sums in float32, then a token in the block. A token's
probability equals that of a sum over the whole vocabulary up to the rounding of float32, as in the
softmax itself.

Sizes: B rows, V tokens in the vocabulary, N blocks, S tokens per block.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from cluster.terminal import PlainError
from orchestrator.sampling.base import SamplingSettings

BLOCK = 128  # tokens: divides most vocabularies
FIRST_BLOCKS = 16  # the ones with the largest maxima have the kept tokens of most rows
MORE_BLOCKS = 8  # times as many, if they do not


def sample_tokens(
    logits: Tensor, draws: Tensor, settings: SamplingSettings
) -> tuple[Tensor, Tensor]:
    """Next tokens [B] from logits [B, V] and uniforms [B]; the first largest logit if greedy.

    Also returns their log-probabilities [B] (float32) after temperature and before top-k and top-p,
    as GRPO uses them; NaN if greedy. A token of probability 0 is never drawn. Temperature, top-k
    and top-p act in this order, as in `generate`. Raises FloatingPointError if logits have NaN or
    infinity.
    """
    if settings.temperature == 0:
        return _largest(logits), torch.full_like(draws, torch.nan, dtype=torch.float32)
    if settings.temperature != 1:
        logits = logits.float() / settings.temperature
    weights = _blocks(logits.softmax(-1, dtype=torch.float32), 0.0)
    sums = weights.sum(-1)
    _check_finite(sums[:, 0])  # in a row with one such logit, every weight is NaN
    if settings.top_k > 0 or settings.top_p < 1:
        tokens = _sample_likely(weights, sums, draws, settings)
    else:
        block, rest = _inverse_transform(sums, draws)
        token, _ = _inverse_transform(_of_block(weights, block), rest)
        tokens = block * BLOCK + token
    return tokens, weights.flatten(1).gather(-1, tokens[:, None])[:, 0].log()


def _largest(logits: Tensor) -> Tensor:
    """The first of the largest logits [B], block by block, which is far faster than `argmax`."""
    blocks = _blocks(logits, -torch.inf)
    block = blocks.amax(-1).argmax(-1)
    of_block = _of_block(blocks, block)
    token = of_block.argmax(-1)
    _check_finite(of_block.gather(-1, token[:, None]))
    return block * BLOCK + token


class NotFinite(PlainError, FloatingPointError):
    """A token cannot be chosen from logits that are not finite."""


def _check_finite(values: Tensor) -> None:
    if not values.isfinite().all():
        raise NotFinite(
            "the model returns NaN or infinite logits: check that its weights, and those of an "
            "adapter, are finite, or write dtype float32 or bfloat16"
        )


def _blocks(values: Tensor, filling: float) -> Tensor:
    """[B, N, S] from [B, V]; the last block is padded."""
    if missing := -values.shape[-1] % BLOCK:
        values = pad(values, (0, missing), value=filling)
    return values.unflatten(-1, (-1, BLOCK))


def _of_block(blocks: Tensor, block: Tensor) -> Tensor:
    """[B, S]: the given block [B] of each row."""
    return blocks[torch.arange(len(blocks), device=blocks.device), block]


def _inverse_transform(weights: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """The indices [B] that uniforms [B] choose by weights [B, n], and the remainders of the
    uniforms.

    Remainders are uniform in [0, 1]. Sums are float64, so that an index of weight 0 is never
    chosen.
    """
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    goal = torch.minimum(draws[:, None] * total, total.nextafter(total.new_zeros(())))
    index = torch.searchsorted(cumulative, goal, right=True)
    weight = weights.gather(-1, index)
    before = cumulative.gather(-1, (index - 1).clamp_(min=0)).where(index > 0, 0.0)
    return index[:, 0], ((goal - before) / weight)[:, 0].clamp_(0, 1)


def _sample_likely(
    weights: Tensor, sums: Tensor, draws: Tensor, settings: SamplingSettings
) -> Tensor:
    """Tokens [B] by weights [B, N, S] with sums [B, N], cut by top-k and top-p.

    The kept tokens are in the few blocks with the largest maxima. More blocks are read, up to all,
    for rows without enough tokens in them, or if the least kept token is not above all other
    blocks.
    """
    tokens = torch.empty_like(draws, dtype=torch.long)
    rows = torch.arange(len(draws), device=draws.device)
    maxima, order = weights.amax(-1).sort(descending=True)
    masses = sums.gather(-1, order)
    total = sums.sum(-1, keepdim=True, dtype=torch.float64)
    needed = torch.full_like(rows, settings.top_k)
    if settings.top_k <= 0:
        covered = masses.cumsum(-1, dtype=torch.float64)
        needed = (covered < settings.top_p * total).sum(-1) + 1
    count = max(FIRST_BLOCKS, settings.top_k)
    most = maxima.shape[-1]
    while len(rows):
        now = rows[needed[rows] <= count] if count < most else rows
        others = maxima[now, count] if count < most else torch.zeros_like(maxima[now, 0])
        blocks = order[now, :count].sort(-1).values  # in the order of the vocabulary
        likely = weights[now[:, None], blocks].flatten(1)
        # Tokens above all other blocks, and one that is not: the rest of these blocks cannot count.
        above = int((likely > others[:, None]).sum(-1).amax()) + 1 if len(now) else 1
        above = min(max(above, settings.top_k), likely.shape[-1])
        place = likely.topk(above, sorted=False).indices.sort(-1).values
        likely = likely.gather(-1, place)
        kept = _kept(likely, total[now], settings)
        index, _ = _inverse_transform(likely * kept, draws[now])
        at = place.gather(-1, index[:, None])
        tokens[now] = (blocks.gather(-1, at // BLOCK) * BLOCK + at % BLOCK)[:, 0]
        least = likely.where(kept, torch.inf).amin(-1)
        needed[now] = torch.where((least > others) | (others == 0), 0, most)
        rows, count = rows[needed[rows] > 0], count * MORE_BLOCKS
    return tokens


def _kept(likely: Tensor, masses: Tensor, settings: SamplingSettings) -> Tensor:
    """Which of the likely tokens [B, n] top-k and top-p keep; all weights sum to masses [B, 1].

    Among equally likely tokens, top-k keeps all or none, and top-p the last ones.
    """
    kept = torch.ones_like(likely, dtype=torch.bool)
    if settings.top_k > 0:
        top = likely.topk(min(settings.top_k, likely.shape[-1])).values
        kept = likely >= top[:, -1:]
        likely = likely * kept
        masses = likely.sum(-1, keepdim=True, dtype=torch.float64)
    if settings.top_p < 1:
        ascending, order = likely.sort(stable=True, dim=-1)
        descending = ascending.flip(-1)
        before = descending.cumsum(-1, dtype=torch.float64) - descending
        nucleus = before < settings.top_p * masses
        nucleus[:, 0] = True
        kept = kept & torch.zeros_like(kept).scatter(-1, order.flip(-1), nucleus)
    return kept
