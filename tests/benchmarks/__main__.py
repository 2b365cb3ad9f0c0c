from agentkv.cli import run
from tests.benchmarks.commands import app

if __name__ == "__main__":
    run(app)
