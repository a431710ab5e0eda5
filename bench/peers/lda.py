"""Fits scikit-learn's LatentDirichletAllocation to documents in the lda-c format.

    python3 lda.py DOCUMENTS TERMS TOPICS PASSES SEEDS DOC_PRIOR TOPIC_PRIOR OUT

OUT-METHOD-VARIANT-SEED holds the parameters of the topics, as float64, topic by topic.
"""
import sys

from peer import cpu, documents, write  # first, because it sets the number of threads
import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation

path, out = sys.argv[1], sys.argv[8]
terms, topics, passes, seeds = map(int, sys.argv[2:6])
doc_prior, topic_prior = map(float, sys.argv[6:8])
rows = documents(path)
words, counts = zip(*(pair for row in rows for pair in row))
x = csr_matrix((counts, words, np.cumsum([0] + [len(row) for row in rows])), shape=(len(rows), terms))
for variant, options in {
    "online": {"learning_method": "online"},
    "online, batches and priors of pgsvi": {"learning_method": "online", "batch_size": 64, "doc_topic_prior": doc_prior, "topic_word_prior": topic_prior},
    "batch": {"learning_method": "batch"},
}.items():
    for seed in range(1, seeds + 1):
        model = LatentDirichletAllocation(n_components=topics, max_iter=passes, random_state=seed, **options)
        model, seconds = cpu(lambda: model.fit(x), 1)
        np.ascontiguousarray(model.components_, dtype="<f8").tofile(f"{out}-LatentDirichletAllocation-{variant}-{seed}")
        write("LatentDirichletAllocation", variant, seed=seed, seconds=seconds, **{"pass": passes})
