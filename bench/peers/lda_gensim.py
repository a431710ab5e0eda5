"""Fits gensim's LdaModel to documents in the lda-c format.

    python3 lda_gensim.py DOCUMENTS TERMS TOPICS PASSES SEEDS DOC_PRIOR TOPIC_PRIOR OUT

The arguments are those of lda.py, and OUT-METHOD-VARIANT-SEED holds what it holds there.
"""
import sys

from peer import cpu, documents, write  # first, because it sets the number of threads
import numpy as np
from gensim.models import LdaModel

path, out = sys.argv[1], sys.argv[8]
terms, topics, passes, seeds = map(int, sys.argv[2:6])
doc_prior, topic_prior = map(float, sys.argv[6:8])
rows = documents(path)
names = {word: str(word) for word in range(terms)}
for variant, options in {
    "online": {},
    "online, batches and priors of pgsvi": {"chunksize": 64, "alpha": [doc_prior] * topics, "eta": topic_prior},
}.items():
    for seed in range(1, seeds + 1):
        model, seconds = cpu(lambda: LdaModel(rows, num_topics=topics, id2word=names, passes=passes, random_state=seed, **options), 1)
        np.ascontiguousarray(model.state.get_lambda(), dtype="<f8").tofile(f"{out}-LdaModel-{variant}-{seed}")
        write("LdaModel", variant, seed=seed, seconds=seconds, **{"pass": passes})
