"""What a user measures on a machine and a model of his own: ``agentkv bench NAME``, one benchmark a file.

base.py                 what a benchmark declares: options, records, tables
results.py measured.py  the form of a result file; figures computed again from its raw records
texts.py pagecache.py   real text and its states; files put out of the page cache
bound.py                codecs against the order-0 bound
faults.py               the fault injector: file-system steps that fail, or are a process's last
process.py controls.py  a function in a new process; what agentkv does not do, for comparison
data/                   labelled questions for the router
"""

BENCHMARKS = {
    "exactness": "Exactness",
    "subsidy": "Subsidy",
    "size": "Size",
    "restore": "Restore",
    "catalogue": "Catalogue",
    "integrity": "Integrity",
    "portability": "Portability",
    "route": "Route",
}
"""Command, which is also the module's name, and class."""
