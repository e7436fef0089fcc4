"""Run the program that the first argument names, `python rank.pyz torch.ddp`; the other arguments are its own."""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    program = sys.argv.pop(1)
    importlib.import_module(f".{program}", __package__).main()


if __name__ == "__main__":
    main()
