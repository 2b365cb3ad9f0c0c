"""``agentkv docs``: documents as windows on disk, found, grafted, cited. One command a file.

common.py    options, and the corpus of a command
add.py       a plan, then files cut, indexed and (eager) read; goes on where it stopped
list.py      the corpora of a store; loads no model
status.py    one corpus: its files, what of them is stored, what has changed since; loads no model
rm.py        retire files, or a whole corpus; loads no model
reindex.py   the search index made anew; loads no model
find.py      the windows for a question; loads a model only to rerank
ask.py       an answer with a quote of the file
"""

from __future__ import annotations

from agentkv.cli.command import App
from agentkv.cli.docs import add, ask, find, list, reindex, rm, status

app = App(help="Documents far past the window: add, find, ask, with a quote of the file.", no_args_is_help=True)
app.command()(add.add)
app.command("list")(list.list_)
app.command()(status.status)
app.command()(rm.rm)
app.command()(reindex.reindex)
app.command()(find.find)
app.command()(ask.ask)
