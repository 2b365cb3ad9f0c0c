"""``agentkv skills``: folders of skills, and the store kept in step with them. One command a file.

common.py     options, and the library of a command
list.py       what the folders hold, and what of it is stored; loads no model
validate.py   the format, and what a person should know; loads no model and opens no store
deposit.py    read what is new or changed, retire what is gone
watch.py      the same from now on, until Ctrl-C
test.py       each skill's routes.jsonl, routed and answered
"""

from __future__ import annotations

from agentkv.cli.command import App
from agentkv.cli.skills import deposit, list, test, validate, watch

app = App(help="Skill folders: check them, keep the store in step with them, test them.", no_args_is_help=True)
app.command("list")(list.list_)
app.command()(validate.validate)
app.command()(deposit.deposit)
app.command()(watch.watch)
app.command("test")(test.ask_routes)
