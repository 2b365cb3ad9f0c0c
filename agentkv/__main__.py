"""``python -m agentkv``: the same as the command ``agentkv``."""

from agentkv.cli import main

if __name__ == "__main__":
    main()
