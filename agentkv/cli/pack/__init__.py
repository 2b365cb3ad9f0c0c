"""``agentkv pack``: blocks in one portable file. One command a file; only import and verify may load a model.

create.py    names of a store -> a file, signed if asked
show.py      what is in a file; who signed it
verify.py    is it whole; with a model: is it true
import_.py   a file -> a store
keys.py      keygen, and trust add | list | rm | policy
"""

from __future__ import annotations

from agentkv.cli.command import App
from agentkv.cli.pack import create, import_, keys, show, verify

app = App(help="Portable packs: blocks, names and texts in one file, checked and signed.", no_args_is_help=True)
app.command()(create.create)
app.command()(show.show)
app.command()(verify.verify)
app.command("import")(import_.import_)
app.command()(keys.keygen)
app.add_typer(keys.trust, name="trust")
