"""Equal shares of clusters of similar questions: a baseline that does not use difficulty."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.streams import generator
from policies.base import Bools, Needs, PolicyError, Rows, check_count, lowest, tie_breakers
from policies.uniform import Random

SAMPLE = 20_000  # questions that the clusters are fitted to
ROWS = 16_384  # questions whose vectors are in memory at once
FEATURES = 4_096  # columns into which words and pairs of words are hashed
# A word, or one character of a script that writes words without spaces between them.
WORD = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"


@dataclass(kw_only=True)
class Diverse(Random):
    """Equal shares of clusters of similar questions; at random within a cluster.

    A question is a vector of its words and pairs of words, numbers as one word, weighted by tf-idf.
    K-means, fitted to a sample of the pool, divides the pool into clusters. The clusters do not
    depend on the seed, which only decides between the prompts of a cluster. If a cluster has too
    few prompts, the others make up for it. Needs no probe. If the skills of a pool do not show in
    its words, the choice is random.

    Options:
        clusters: the number of clusters (16).
    """

    name = "diverse"
    needs: Needs = "nothing"
    reads_questions = True

    clusters: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.name, "clusters", self.clusters)
        self._labels: tuple[pa.ChunkedArray, Rows] | None = None

    def pick(
        self, difficulty: pa.Table, size: int, rng: np.random.Generator, free: Bools | None = None
    ) -> Rows:
        """The first free rows of each cluster in the order of the seed, then the second ones, …"""
        ranks = tie_breakers(difficulty.num_rows, rng)
        open_rows = self.eligible(difficulty)
        open_rows = open_rows if free is None else open_rows & free
        rows = np.flatnonzero(open_rows)
        if len(rows) < size:
            raise PolicyError(self.shortage(difficulty, len(rows), size, free is not None))
        rows = rows[np.argsort(ranks[rows])]
        label = self.labels(difficulty)[rows]
        order = np.argsort(label, kind="stable")
        begin = np.searchsorted(label[order], label[order])
        place = np.zeros(difficulty.num_rows)  # of a row within its cluster
        place[rows[order]] = np.arange(len(rows)) - begin
        return lowest(place, ranks, open_rows, size)

    def labels(self, difficulty: pa.Table) -> Rows:
        """The cluster of each row [rows], from 0."""
        if "question" not in difficulty.column_names:
            raise PolicyError(
                "diverse needs the column question (the prompts' texts), which this table does not "
                "have: select with decile select FILE -e NAME, or add the column"
            )
        questions = difficulty["question"]
        if not pa.types.is_string(questions.type) and not pa.types.is_large_string(questions.type):
            raise PolicyError(
                f"diverse needs text in the column question, which has type {questions.type}"
            )
        # A summary of a probe selects from the same questions many times.
        if self._labels is None or not self._labels[0].equals(questions):
            self._labels = questions, _clusters(questions, self.clusters)
        return self._labels[1]


def _clusters(questions: pa.ChunkedArray, count: int) -> Rows:
    """The cluster of each question, at most `count` of them."""
    # Importing these takes a second, which other policies do not need.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from threadpoolctl import threadpool_limits

    hashing = HashingVectorizer(
        token_pattern=WORD, ngram_range=(1, 2), n_features=FEATURES, norm=None, alternate_sign=False
    )

    def counted(texts: pa.ChunkedArray) -> Any:
        numbers = pc.replace_substring_regex(pc.fill_null(texts, ""), r"\d+", "0")
        return hashing.transform(numbers.to_pylist())

    drawn = generator("diverse: sample").permutation(len(questions))[:SAMPLE]
    sample = counted(questions.take(pa.array(np.sort(drawn))))
    weights = TfidfTransformer(sublinear_tf=True).fit(sample)
    means = KMeans(min(count, len(drawn)), random_state=0)
    # The order in which threads sum numbers would decide between prompts.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different questions
        means.fit(weights.transform(sample))
        parts = [
            means.predict(weights.transform(counted(questions.slice(start, ROWS))))
            for start in range(0, len(questions), ROWS)
        ]
    return np.concatenate(parts).astype(np.int64)
