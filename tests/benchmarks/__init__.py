"""Research benchmarks: what agentkv is worth beside other ways, on other people's documents, on hard problems.

``python -m tests.benchmarks NAME`` runs one, in a checkout; ``python -m tests.benchmarks`` lists them. What a user
measures on a machine and a model of his own is ``agentkv bench``. Nothing in the package imports this.

agent/ documents/ flywheel/ peers/   the benchmarks, by what they are about; their tests lie beside them
arrangements.py answers.py           a state's bytes in other orders than a store's; the labelled questions of `skills/`
architectures.py tiny/               models of random weights of every kind: which restore exactly
migration.py                         a store moved to another fingerprint, killed on the way
languages.py adding.py unrelated.py  search in 20 languages, documents of 1 to 64 MB, questions that no manual answers:
                                     each run by itself, ``python -m tests.benchmarks.languages``
declared.py commands/ tables.py      every benchmark's class; the commands; tables of results in Markdown files
every.py recording.py energy.py      one after another; runs on record; joules
"""

from agentkv.bench.measured import SCORERS

DECLARED = (
    ("tests.benchmarks.arrangements", "Arrangements"),
    ("tests.benchmarks.architectures", "Architectures"),
    ("tests.benchmarks.migration", "Migration"),
    ("tests.benchmarks.answers", "Answers"),
    ("tests.benchmarks.flywheel.transfer", "Families"),
    ("tests.benchmarks.flywheel.interference", "Interference"),
    ("tests.benchmarks.flywheel.negatives", "Negatives"),
    ("tests.benchmarks.flywheel.aime", "Aime"),
    ("tests.benchmarks.flywheel.adaptation", "Variants"),
    ("tests.benchmarks.documents.compose", "Compose"),
    ("tests.benchmarks.documents.chunk_sizes", "ChunkSizes"),
    ("tests.benchmarks.documents.interrupt", "Interrupt"),
    ("tests.benchmarks.documents.widen", "Widen"),
    ("tests.benchmarks.documents.needles", "Needles"),
    ("tests.benchmarks.documents.depth", "Depth"),
    ("tests.benchmarks.documents.questions", "Questions"),
    ("tests.benchmarks.agent.agent", "Agent"),
    ("tests.benchmarks.peers.peers", "Peers"),
)
"""Module and class of the benchmarks that are declared in one file, as those of the package are."""

SCORERS.extend(module for module, _ in DECLARED if module not in SCORERS)
