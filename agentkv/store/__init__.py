"""Blocks on disk: bytes, hashes and files; nothing of models. FORMAT.md says what each byte means.

```
catalog.py           BlockStore: blocks and names                        <- what callers use
├── marker.py        what makes a directory a store
├── deposit.py       the order of writing, the commit point
├── workers.py       threads
├── recordfiles.py   one sealed JSON file per record, cached by file identity
├── segments.py      SegmentStore protocol, FileSegmentStore
│   └── codec.py     raw bytes <-> stored payload (byte planes, zstd)
├── gc.py            what nothing references any more
├── format.py        bytes <-> records, the one validator, all limits
└── cache.py         objects in RAM, bounded in bytes
```
Where does it go? Another place for bytes (S3): a class beside ``FileSegmentStore`` that passes its contract
tests. Another encoding: ``codec.py`` and a number in ``format.Codec``. Another record on disk: ``format.py``
(encode, decode, limits) and a ``RecordFiles`` in the catalogue.
"""
