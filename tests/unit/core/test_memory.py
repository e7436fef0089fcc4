"""What a process does without, and what it gives back."""

import subprocess
import sys

WITHOUT = """
import sys
import pyarrow as pa
from orchestrator.core import memory
memory.without_pandas()
made = pa.table({"a": [1, 2]})
assert "pandas" not in sys.modules
assert made.to_pandas()["a"].tolist() == [1, 2]
"""
FREED = """
import re
from pathlib import Path
from orchestrator.core import memory
def held():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
blocks = [b"x" * (100_000 + number) for number in range(500)]
blocks = blocks[::50]
before = held()
memory.give_back()
assert held() < before - 20_000, (before, held())
"""


def test_arrays_are_made_without_pandas_which_is_there_when_it_is_asked_for():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)


def test_freed_memory_goes_back_to_the_system():
    subprocess.run([sys.executable, "-c", FREED], check=True)
