"""Blocks on disk: bytes, hashes and files; nothing of models. FORMAT.md says what each byte means.

```
catalog.py           BlockStore: blocks, names, marks                    <- what callers use
├── bounded.py       BlockStore's budget: eviction at deposits, what is held together
├── files.py         where everything is
│   └── recordfiles.py   one sealed file per record, cached by file identity
├── marker.py        what makes a directory a store
├── lock.py          who may change it now
├── deposit.py       the order of writing, the commit point
├── gc.py            what nothing references any more; what a crash has left
├── budget.py        which blocks go when it gets too large
├── check.py         what is damaged, of all that is there
│   ├── listing.py       every entry of its folders: the store's, or a finding
│   └── findings.py      what can be wrong with one file
├── repair.py        moving aside what is damaged
├── adapters.py      what adapters keep beside the blocks
├── annexes.py       the parts that keep sealed files beside the blocks, for check and repair
│   ├── beside.py        what they share: the walk, the seal
│   ├── corpora.py       corpora of documents
│   ├── solutions.py     the flywheel
│   └── threadlog.py     conversations
├── uses.py          hits and last use
├── turnlog.py       what turns restored and read
│   └── lines.py         a log of lines that rotates, also the router's
├── workers.py       threads
├── segments.py      SegmentStore protocol, FileSegmentStore
│   └── codec.py     raw bytes <-> stored payload (byte planes, zstd)
├── format.py        bytes <-> records, the one validator, all limits
└── cache.py         objects in RAM, bounded in bytes
```
Where does it go? Another place for bytes (S3): a class beside ``FileSegmentStore`` that passes its contract
tests. Another encoding: ``codec.py`` and a number in ``format.Codec``. Another record on disk: ``format.py``
(encode, decode, limits) and a folder in ``files.py``.
"""
