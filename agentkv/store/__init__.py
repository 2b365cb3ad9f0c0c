"""Blocks on disk: bytes, hashes and files; nothing of models. FORMAT.md says what each byte means.

```
catalog.py           BlockStore: blocks, names                             <- what callers use
├── bounded.py       its byte budget: eviction at deposits, blocks that are held together
├── marks.py         its marks: pinned, imported, refused
├── files.py         where everything is; parents and children
│   └── recordfiles.py   one sealed file per record, cached by file identity
├── index.py         the index beside the records: made, kept up to date, thrown away
│   ├── indexrows.py     its tables
│   ├── indexed.py       names, candidates, parents and sizes from it
│   ├── indexplan.py     which blocks go, by it
│   └── indexcheck.py    whether it is what the files say
├── marker.py        what makes a directory a store
├── deposit.py       the order of writing, the commit point
├── gc.py            what nothing references any more; what a crash has left
├── budget.py        which blocks go when it gets too large
├── check.py         what is corrupt, of all that is there
│   ├── listing.py       every entry of its folders: the store's, or a finding
│   └── findings.py      what can be wrong with one file
├── repair.py        moving what is corrupt to the quarantine
├── registry.py      the folders that features keep beside the blocks
├── uses.py          hits and last use
├── segments.py      SegmentStore protocol, FileSegmentStore; threads for many segments
│   └── codec.py     raw bytes <-> stored payload (byte planes, zstd)
└── format.py        bytes <-> records, the one validator, all limits
```
Where does it go? Another place for bytes (S3): a class beside ``FileSegmentStore`` that passes its contract
tests. Another encoding: ``codec.py`` and a number in ``format.Codec``. Another record on disk: ``format.py``
(encode, decode, limits) and a folder in ``files.py``. Files of a feature: its own module, named in ``registry.py``.
"""
